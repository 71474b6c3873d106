// Causal depthwise convolution of pieces of rows, with a silu behind it: what `conv_pieces` in
// causal_conv.py does, for bfloat16 and channels in eights. Each input is read once: a thread walks
// along the tokens of a part of a piece with its eight channels and the last inputs in registers.
//
// Defined by the build:
//   TAPS       tokens that the convolution sees
//   THREADS    of a block
//   PARTS      parts of a piece
//   TOKENS     of a part, a multiple of AHEAD

typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

#define AHEAD 8
#define BEFORE (TAPS - 1)

__device__ __forceinline__ float low(u32 two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(u32 two) { return __uint_as_float(two & 0xffff0000u); }

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

struct Eight {
    float at[8];
};

__device__ __forceinline__ Eight unpacked(const uint4 &v) {
    return {low(v.x), high(v.x), low(v.y), high(v.y), low(v.z), high(v.z), low(v.w), high(v.w)};
}

__device__ __forceinline__ uint4 load(const u16 *from) { return *(const uint4 *)from; }

// silu of two sums, rounded before and behind as the reference does.
__device__ __forceinline__ u32 activated(float first, float second) {
    const u32 two = packed(first, second);
    first = low(two);
    second = high(two);
    return packed(__fdividef(first, 1.0f + __expf(-first)), __fdividef(second, 1.0f + __expf(-second)));
}

extern "C" __global__ void __launch_bounds__(THREADS)
conv_pieces(const u16 *x, const u16 *taps, const int *pieces, const int *num_pieces,
            const u16 *states, u16 *out, int stride, int width, i64 slot_stride) {
    const int piece = blockIdx.x, part = blockIdx.y % PARTS;
    const int channel = (blockIdx.y / PARTS * THREADS + threadIdx.x) * 8;
    if (piece >= *num_pieces || channel >= width) return;
    const int *own = pieces + 8 * piece;
    const int row_first = own[2], slot = own[3];
    const int begin = own[0] + part * TOKENS, end = min(own[0] + own[1], begin + TOKENS);
    if (begin >= end) return;
    const bool carried = slot >= 0 && own[4] == 0;
    const uint4 none = make_uint4(0, 0, 0, 0);

    Eight weight[TAPS], window[BEFORE + AHEAD];
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) weight[tap] = unpacked(load(taps + tap * width + channel));
#pragma unroll
    for (int i = 0; i < BEFORE; ++i) {
        const int source = begin - BEFORE + i;
        uint4 v = none;
        if (source >= row_first)
            v = load(x + (i64)source * stride + channel);
        else if (carried)
            v = load(states + slot * slot_stride + (source - row_first + BEFORE) * width + channel);
        window[i] = unpacked(v);
    }
    for (int start = begin; start < end; start += AHEAD) {
        uint4 ahead[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            ahead[i] = start + i < end ? load(x + (i64)(start + i) * stride + channel) : none;
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            window[BEFORE + i] = unpacked(ahead[i]);
            if (start + i >= end) continue;
            Eight total = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
                for (int c = 0; c < 8; ++c)
                    total.at[c] = fmaf(window[i + tap].at[c], weight[tap].at[c], total.at[c]);
            const uint4 v = make_uint4(
                activated(total.at[0], total.at[1]), activated(total.at[2], total.at[3]),
                activated(total.at[4], total.at[5]), activated(total.at[6], total.at[7]));
            *(uint4 *)(out + (i64)(start + i) * width + channel) = v;
        }
#pragma unroll
        for (int i = 0; i < BEFORE; ++i) window[i] = window[AHEAD + i];
    }
}
