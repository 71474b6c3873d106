// For each piece of a row and each head: the inverse of 1 + X, X strictly lower triangular, with its
// columns brought to what tokens wrote. What `invert_pieces` in delta_rule.py does, for factors of
// products in float16. A thread has a column and finds it by substitution from the top.
//
// Defined by the build: nothing.

typedef unsigned short u16;
typedef long long i64;

#define TOKENS 64

__device__ __forceinline__ u16 half_of(float value) {
    u16 v;
    // At most what the type holds; not-a-numbers stay.
    value = value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v) : "f"(value));
    return v;
}

extern "C" __global__ void __launch_bounds__(TOKENS)
invert_pieces(const int *pieces, const int *num_pieces, const float *systems, const float *strengths,
              const float *decays, u16 *of_values, u16 *of_keys, int num_heads) {
    __shared__ __align__(16) float x[TOKENS][TOKENS];
    const int piece = blockIdx.x, head = blockIdx.y, column = threadIdx.x;
    if (piece >= *num_pieces) return;
    const int first = pieces[8 * piece], count = pieces[8 * piece + 1];
    // Sixteen threads load a row.
    const int part = column % 16, top = column / 16;
#pragma unroll
    for (int i = top; i < TOKENS; i += TOKENS / 16) {
        float4 v = make_float4(0, 0, 0, 0);
        if (i < count) v = ((const float4 *)(systems + ((i64)(first + i) * num_heads + head) * TOKENS))[part];
        ((float4 *)x[i])[part] = v;
    }
    float strength = 0, decay = 0;
    if (column < count) {
        const i64 one = (i64)(first + column) * num_heads + head;
        strength = strengths[one];
        decay = expf(decays[one]);
    }
    __syncthreads();
    float y[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; ++i) {
        float sums[4] = {i == column ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
        for (int k = 0; k + 4 <= i; k += 4) {
            const float4 v = *(const float4 *)&x[i][k];
            sums[0] = fmaf(-v.x, y[k], sums[0]);
            sums[1] = fmaf(-v.y, y[k + 1], sums[1]);
            sums[2] = fmaf(-v.z, y[k + 2], sums[2]);
            sums[3] = fmaf(-v.w, y[k + 3], sums[3]);
        }
#pragma unroll
        for (int k = i / 4 * 4; k < i; ++k) sums[k % 4] = fmaf(-x[i][k], y[k], sums[k % 4]);
        y[i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
    const i64 at = ((i64)first * num_heads + head) * TOKENS + column;
    const i64 next = (i64)num_heads * TOKENS;
#pragma unroll
    for (int i = 0; i < TOKENS; ++i) {
        if (i >= count) break;
        const float of_value = y[i] * strength;
        of_values[at + i * next] = half_of(of_value);
        of_keys[at + i * next] = half_of(of_value * decay);
    }
}
