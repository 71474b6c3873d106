// The gated delta rule of one layer for decoding rows, one token each, at the speed of memory: what
// `delta_step` in delta_rule.py does, for bfloat16 and heads of 128 channels. Yang et al.,
// arXiv:2412.06464. Knows nothing of layers.
//
// A block has the memory of a row's head, 128 keys by 128 values in float32: a warp 16 keys, a
// thread four values of each of them in registers, so that 64 KB are on their way at once and the
// sums over keys are a thread's own but for the last step. Memories are read before the kernel ahead
// of this one has ended: of one step, nothing but this kernel writes a layer's.
//
// Defined by the build:
//   GATED      the norm and the gate of the output too
//   OVERLAP    launched before the kernel ahead has ended

typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

#define DIM 128
#define WARPS 8
#define KEYS (DIM / WARPS)

__device__ __forceinline__ float wide(u32 half) { return __uint_as_float(half << 16); }

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

__device__ __forceinline__ float rounded(float value) { return wide(packed(value, 0.0f) & 0xffff); }

struct Four {
    float at[4];
};

// What other kernels wrote: never through the read-only path.
__device__ __forceinline__ Four load_four(const u16 *from) {
    u32 low, high;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "l"(from) : "memory");
    return {wide(low & 0xffff), wide(low >> 16), wide(high & 0xffff), wide(high >> 16)};
}

__device__ __forceinline__ float load_one(const u16 *from) {
    u16 v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(from) : "memory");
    return wide(v);
}

__device__ __forceinline__ float4 load_memory(const float *from) {
    float4 v;
    asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

__device__ __forceinline__ float squares(const Four &v) {
    return warp_sum(v.at[0] * v.at[0] + v.at[1] * v.at[1] + v.at[2] * v.at[2] + v.at[3] * v.at[3]);
}

// rate * softplus(x); log(1 + e) as Kahan has it, to full precision for small e.
__device__ __forceinline__ float log_decay(float rate, float x) {
    const float grown = expf(fminf(x, 20.0f)), total = 1.0f + grown;
    const float below = total == 1.0f ? 1.0f : total - 1.0f;
    const float bent = total == 1.0f ? grown : logf(total) * (grown / below);
    return rate * (x > 20.0f ? x : bent);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
delta_step(const u16 *mixed, const u16 *raw, const float *rate, const float *bias, const u16 *norm,
           const int *positions, const int *row_slots, const int *row_saves, float *states, u16 *out,
           int raw_stride, int first_gate, int first_strength, int num_key_heads, int num_heads,
           i64 slot_stride, float scale, float eps) {
    __shared__ float parts[2][WARPS][DIM];
    const int row = blockIdx.x, head = blockIdx.y;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#if OVERLAP
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    const int slot = row_slots[row];
    const bool carried = slot >= 0 && positions[row] > 0;
    const i64 within = (i64)head * (DIM * DIM) + warp * (KEYS * DIM) + lane * 4;
    float4 memory[KEYS];
    const float *own = states + (i64)slot * slot_stride + within;
#pragma unroll
    for (int i = 0; i < KEYS; ++i)
        memory[i] = carried ? load_memory(own + i * DIM) : make_float4(0, 0, 0, 0);
#if OVERLAP
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const int key_head = head / (num_heads / num_key_heads);
    const int key_width = num_key_heads * DIM;
    const u16 *mixed_at = mixed + (i64)row * (2 * key_width + num_heads * DIM) + lane * 4;
    const u16 *raw_at = raw + (i64)row * raw_stride;
    Four query = load_four(mixed_at + key_head * DIM);
    Four key = load_four(mixed_at + key_width + key_head * DIM);
    const Four value = load_four(mixed_at + 2 * key_width + head * DIM);
    const float strength = rounded(1.0f / (1.0f + expf(-load_one(raw_at + first_strength + head))));
    const float decay = expf(
        log_decay(rate[head], load_one(raw_at + first_strength + num_heads + head) + bias[head]));
    const float query_factor = 1.0f / __fsqrt_rn(squares(query) + 1e-6f) * scale;
    const float key_factor = 1.0f / __fsqrt_rn(squares(key) + 1e-6f);
    float alike = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        query.at[i] *= query_factor;
        key.at[i] *= key_factor;
        alike = fmaf(query.at[i], key.at[i], alike);
    }
    alike = warp_sum(alike);

    // Of this warp's keys: what the memory holds under the key and under the query.
    Four known = {0, 0, 0, 0}, seen = {0, 0, 0, 0};
    float own_key[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
        const int from = warp * (KEYS / 4) + i / 4;
        own_key[i] = __shfl_sync(~0u, key.at[i % 4], from);
        const float own_query = __shfl_sync(~0u, query.at[i % 4], from);
        float4 &m = memory[i];
        m = make_float4(m.x * decay, m.y * decay, m.z * decay, m.w * decay);
        known = {fmaf(m.x, own_key[i], known.at[0]), fmaf(m.y, own_key[i], known.at[1]),
                 fmaf(m.z, own_key[i], known.at[2]), fmaf(m.w, own_key[i], known.at[3])};
        seen = {fmaf(m.x, own_query, seen.at[0]), fmaf(m.y, own_query, seen.at[1]),
                fmaf(m.z, own_query, seen.at[2]), fmaf(m.w, own_query, seen.at[3])};
    }
    *(float4 *)&parts[0][warp][lane * 4] = *(float4 *)known.at;
    *(float4 *)&parts[1][warp][lane * 4] = *(float4 *)seen.at;
    __syncthreads();
    known = {0, 0, 0, 0};
#pragma unroll
    for (int other = 0; other < WARPS; ++other)
#pragma unroll
        for (int i = 0; i < 4; ++i) known.at[i] += parts[0][other][lane * 4 + i];
    Four written;
#pragma unroll
    for (int i = 0; i < 4; ++i) written.at[i] = strength * (value.at[i] - known.at[i]);
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
        float4 &m = memory[i];
        m = make_float4(fmaf(own_key[i], written.at[0], m.x), fmaf(own_key[i], written.at[1], m.y),
                        fmaf(own_key[i], written.at[2], m.z), fmaf(own_key[i], written.at[3], m.w));
    }
    auto keep = [&](int target) {
        if (target < 0) return;
        float *to = states + (i64)target * slot_stride + within;
#pragma unroll
        for (int i = 0; i < KEYS; ++i) *(float4 *)(to + i * DIM) = memory[i];
    };
    keep(slot);
    keep(row_saves[2 * row]);
    keep(row_saves[2 * row + 1]);
    if (warp) return;

    Four result = {0, 0, 0, 0};
#pragma unroll
    for (int other = 0; other < WARPS; ++other)
#pragma unroll
        for (int i = 0; i < 4; ++i) result.at[i] += parts[1][other][lane * 4 + i];
#pragma unroll
    for (int i = 0; i < 4; ++i) result.at[i] = rounded(fmaf(alike, written.at[i], result.at[i]));
#if GATED
    const Four gate = load_four(raw_at + first_gate + head * DIM + lane * 4);
    const Four own_scale = load_four(norm + lane * 4);
    const float root = __fsqrt_rn(squares(result) / DIM + eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float normed = rounded(rounded(result.at[i] / root) * own_scale.at[i]);
        result.at[i] = normed * (gate.at[i] / (1.0f + expf(-gate.at[i])));
    }
#endif
    const uint2 four = make_uint2(packed(result.at[0], result.at[1]), packed(result.at[2], result.at[3]));
    *(uint2 *)(out + ((i64)row * num_heads + head) * DIM + lane * 4) = four;
}
