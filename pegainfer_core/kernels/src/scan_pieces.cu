// Takes rows' memories through their pieces, in order, as the kernel of this name in delta_rule.py
// does; for heads of 128 key channels and factors in float16, for sm_90a.
//
// A block has 64 value channels of a head's memory, turned: a channel of the values a row of the
// tensor core's product, in registers. So it is the left operand of the products with what a piece
// reads and asks, and sums of one product are, once packed, the left operand of the next: nothing on
// the way from piece to piece passes through shared memory. One warp lets the copy engine bring what
// other kernels prepared, up to STAGES pieces ahead; four compute.
//
// Defined by the build: VALUE_DIM (a multiple of 64).

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KEY_DIM 128
#define CHANNELS 64
#define PIECE 64
#define PIECE_INTS 8
#define STAGES 3
#define COMPUTING 128
#define ROW_BYTES 128
#define TILE_BYTES (PIECE * ROW_BYTES)
// Tiles of 64 tokens and 128 bytes of each.
#define READS 0
#define QUERIES 2
#define KEYS 4
#define SCORES 6
#define WRITES 7
#define TILES 9
#define STAGE_BYTES (TILES * TILE_BYTES)
#define AT_FACTS (STAGES * STAGE_BYTES)
#define AT_BARRIERS (AT_FACTS + STAGES * 1024)

// Of a piece, beside its tiles.
struct Facts {
    float query_factors[PIECE], key_factors[PIECE], decay;
    int piece[PIECE_INTS];
};

struct Barriers {
    u64 full[STAGES], empty[STAGES];
};

extern __shared__ __align__(1024) unsigned char shared[];

__device__ __forceinline__ u32 shared_address(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void init(u64 *barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}

__device__ __forceinline__ void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void expect(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void wait(u64 *barrier, u32 parity) {
    u32 done, at = shared_address(barrier);
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!done);
}

__device__ __forceinline__ void copy_tile(u32 to, const void *map, u64 *barrier, int column, int token) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(token)
                 : "memory");
}

__device__ __forceinline__ void copy_word(const void *to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// Arrives once the words are there that this thread asked for.
__device__ __forceinline__ void arrive_copied(u64 *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void acquire_map(const void *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

__device__ __forceinline__ void sync_computing() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

// What threads wrote to shared memory, tensor cores and the copy engine see from here on.
__device__ __forceinline__ void show_others() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A 128-byte-swizzled operand: groups of eight rows are 1,024 bytes apart, chunks of 64 columns a tile.
__device__ __forceinline__ u64 operand(u32 at) {
    return (u64)((at & 0x3FFFF) >> 4) | (u64)(TILE_BYTES >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int COUNT> __device__ __forceinline__ void pin(float (&values)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

#define OUT8(d, i)                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),      \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define OUT32(d, i) OUT8(d, i), OUT8(d, i + 8), OUT8(d, i + 16), OUT8(d, i + 24)
#define NAMES32                                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "    \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

// d [64 channels, 64 tokens] (+)= a [64 channels, 16] @ b^T, b's rows being the tokens.
__device__ __forceinline__ void multiply_by_rows(float (&d)[32], const u32 *a, u64 b, int adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " NAMES32
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
                 : OUT32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}

// d [64 channels, 128] += a [64 channels, 16 tokens] @ b, b's rows being the tokens.
__device__ __forceinline__ void multiply_by_columns(float (&d)[64], const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " NAMES32
                 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, "
                 "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
                 : OUT32(d, 0), OUT32(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// As float16, at most what that holds; not-a-numbers stay.
__device__ __forceinline__ u32 two_halves(float low, float high) {
    u32 both;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ u32 rounded(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Four 8 x 8 matrices, each lane naming where a column of one goes.
__device__ __forceinline__ void store_turned(u32 at, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void keep_before(u32 &word) { asm volatile("" : "+r"(word)::"memory"); }

// Sums as left operands.
template <int COUNT> __device__ __forceinline__ void pack(u32 (&to)[COUNT / 2], const float (&from)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) to[i] = two_halves(from[2 * i], from[2 * i + 1]);
    // All before the first product, or each would wait for the one before.
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) keep_before(to[i]);
}

struct Maps {
    const void *queries, *keys, *reads, *writes, *scores;
};

// The copying warp's part: brings each piece's tiles and facts.
__device__ __forceinline__ void bring(Barriers &bars, const Maps &maps, const int *pieces, int begin, int stop,
                                      int head, int key_head, int num_heads, const float *decays,
                                      const float *query_factors, const float *key_factors) {
    const int lane = threadIdx.x & 31, slice = blockIdx.y;
    const int kind = lane < KEYS ? (lane < QUERIES ? 0 : 1) : lane < SCORES ? 2 : lane < WRITES ? 3 : 4;
    const void *map = kind == 0   ? maps.reads
                      : kind == 1 ? maps.queries
                      : kind == 2 ? maps.keys
                      : kind == 3 ? maps.scores
                                  : maps.writes;
    // Maps count in 16 bits: a channel of `writes` is two of them.
    const int half = kind == 3 ? 0 : kind == 4 ? lane - WRITES : lane & 1;
    const int column = (kind == 0   ? head * KEY_DIM
                        : kind < 3  ? key_head * KEY_DIM
                        : kind == 3 ? head * PIECE
                                    : (head * VALUE_DIM + slice * CHANNELS) * 2) +
                       half * 64;
    if (lane < TILES) acquire_map(map);
    int first = pieces[PIECE_INTS * begin], count = pieces[PIECE_INTS * begin + 1];
    for (int piece = begin; piece < stop; ++piece) {
        const int stage = (piece - begin) % STAGES;
        const u32 round = (piece - begin) / STAGES;
        const int *next = pieces + PIECE_INTS * min(piece + 1, stop - 1);
        const int next_first = next[0], next_count = next[1];
        u64 *barrier = &bars.full[stage];
        Facts &facts = *(Facts *)(shared + AT_FACTS + stage * 1024);
        wait(&bars.empty[stage], (round & 1) ^ 1);
        if (lane == 0) expect(barrier, count ? STAGE_BYTES : 0);
        __syncwarp();
        if (count && lane < TILES)
            copy_tile(shared_address(shared) + stage * STAGE_BYTES + lane * TILE_BYTES, map, barrier, column,
                      first);
#pragma unroll
        for (int i = 0; i < PIECE; i += 32) {
            const long long at = (long long)(first + i + lane) * num_heads + head;
            if (i + lane < count) {
                copy_word(facts.query_factors + i + lane, query_factors + at);
                copy_word(facts.key_factors + i + lane, key_factors + at);
            }
        }
        if (lane < PIECE_INTS) copy_word(facts.piece + lane, pieces + PIECE_INTS * piece + lane);
        if (lane == 0 && count)
            copy_word(&facts.decay, decays + (long long)(first + count - 1) * num_heads + head);
        arrive_copied(barrier);
        first = next_first;
        count = next_count;
    }
}

// Where a thread's sum i lies: of 64 channels and any number of columns.
__device__ __forceinline__ int channel_of(int i) {
    return (threadIdx.x >> 5) * 16 + ((threadIdx.x & 31) >> 2) + (i / 2 % 2) * 8;
}
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + (threadIdx.x & 3) * 2 + i % 2; }

// A product's factors behind the last token may be anything, and a weight of zero does not hide what is
// not a number.
__device__ __forceinline__ void clear_keys(unsigned char *keys, int count) {
    for (int i = threadIdx.x; i < (PIECE - count) * 16; i += COMPUTING) {
        const int row = count + i / 16, part = i % 16;
        *(uint4 *)(keys + part / 8 * TILE_BYTES + row * ROW_BYTES + part % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
    show_others();
    sync_computing();
}

// One piece: returns once memory and output are right.
__device__ __forceinline__ void take(float (&memory)[64], float (&result)[32], unsigned char *stage,
                                     const Facts &facts, int count) {
    const u32 at = shared_address(stage);
    u32 known[32], written[16], kept[16];
    float write[32];
    pack(known, memory);
    // Without a token the decay is not there.
    const float decay = __expf(count ? facts.decay : 0.0f);
#pragma unroll
    for (int i = 0; i < 64; ++i) memory[i] *= decay;
    mma_fence();
#pragma unroll
    for (int step = 0; step < 8; ++step)
        multiply_by_rows(write, known + 4 * step, operand(at + (READS + step / 4) * TILE_BYTES + step % 4 * 32),
                         step > 0);
    mma_commit();
#pragma unroll
    for (int step = 0; step < 8; ++step)
        multiply_by_rows(result, known + 4 * step,
                         operand(at + (QUERIES + step / 4) * TILE_BYTES + step % 4 * 32), step > 0);
    mma_commit();
    float own[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int channel = channel_of(i), token = column_of(i);
        own[i] = *(const float *)(stage + (WRITES + channel / 32) * TILE_BYTES + token * ROW_BYTES +
                                  ((channel % 32 / 4 ^ token % 8) << 4) + channel % 4 * 4);
    }
    mma_wait<1>();
    pin(write);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        write[i] = own[i] - write[i];
        if (column_of(i) >= count) write[i] = 0;
    }
    pack(written, write);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        const float2 factors = *(const float2 *)(facts.key_factors + column_of(i));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float factor = j % 2 ? factors.y : factors.x;
            write[i + j] = column_of(i + j) < count ? write[i + j] * factor : 0;
        }
    }
    pack(kept, write);
    mma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
        multiply_by_columns(memory, kept + 4 * step, operand(at + KEYS * TILE_BYTES + step * 16 * ROW_BYTES));
    mma_commit();
    mma_wait<1>();
    pin(result);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        const float2 factors = *(const float2 *)(facts.query_factors + column_of(i));
#pragma unroll
        for (int j = 0; j < 4; ++j) result[i + j] *= j % 2 ? factors.y : factors.x;
    }
    mma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
        multiply_by_rows(result, written + 4 * step, operand(at + SCORES * TILE_BYTES + step * 32), 1);
    mma_commit();
    mma_wait<0>();
    pin(memory);
    pin(result);
}

// Memories [KEY_DIM, VALUE_DIM] of a layer's heads; `own` is this block's head and channels.
__device__ __forceinline__ void leave(float *own, const float (&memory)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) own[column_of(i) * VALUE_DIM + channel_of(i)] = memory[i];
}

// Where 16 bytes of a token's row lie in a tile.
__device__ __forceinline__ u32 unit(int token, int index) {
    return token * ROW_BYTES + ((index ^ token % 8) << 4);
}

// Tokens' outputs, so many values apart; turned by way of a tile that nobody needs any more.
__device__ __forceinline__ void give(unsigned char *tile, u16 *out, long long apart, const float (&result)[32],
                                     int count) {
    const int lane = threadIdx.x & 31, index = (threadIdx.x >> 5) * 2 + (lane >> 3) % 2;
    sync_computing();
#pragma unroll
    for (int i = 0; i < 32; i += 8)
        store_turned(shared_address(tile) + unit(i / 4 * 8 + (lane >> 4) * 8 + lane % 8, index),
                     rounded(result[i], result[i + 1]), rounded(result[i + 2], result[i + 3]),
                     rounded(result[i + 4], result[i + 5]), rounded(result[i + 6], result[i + 7]));
    show_others();
    sync_computing();
#pragma unroll
    for (int i = 0; i < PIECE * 8; i += COMPUTING) {
        const int token = (threadIdx.x + i) / 8, part = threadIdx.x % 8;
        if (token < count) *(uint4 *)(out + token * apart + part * 8) = *(const uint4 *)(tile + unit(token, part));
    }
}

__device__ __forceinline__ void compute(Barriers &bars, const int *pieces, int begin, int stop, int head,
                                        float *states, long long slot_stride, u16 *out, int num_heads) {
    const int lane = threadIdx.x & 31, first_channel = blockIdx.y * CHANNELS;
    const int slot = pieces[PIECE_INTS * begin + 3];
    const bool carried = slot >= 0 && pieces[PIECE_INTS * begin + 4] == 0;
    float *const own = states + (long long)head * (KEY_DIM * VALUE_DIM) + first_channel;
    float memory[64], result[32];
#pragma unroll
    for (int i = 0; i < 64; ++i)
        memory[i] = carried ? own[slot * slot_stride + column_of(i) * VALUE_DIM + channel_of(i)] : 0;
    for (int piece = begin; piece < stop; ++piece) {
        const int stage = (piece - begin) % STAGES;
        const Facts &facts = *(const Facts *)(shared + AT_FACTS + stage * 1024);
        unsigned char *const tiles = shared + stage * STAGE_BYTES;
        wait(&bars.full[stage], (piece - begin) / STAGES & 1);
        const int first = facts.piece[0], count = __shfl_sync(~0u, facts.piece[1], 0), save = facts.piece[5];
        if (count < PIECE) clear_keys(tiles + KEYS * TILE_BYTES, count);
        take(memory, result, tiles, facts, count);
        give(tiles + QUERIES * TILE_BYTES, out + ((long long)first * num_heads + head) * VALUE_DIM + first_channel,
             num_heads * VALUE_DIM, result, count);
        __syncwarp();
        if (lane == 0) arrive(&bars.empty[stage]);
        if (save >= 0) leave(own + save * slot_stride, memory);
    }
    if (slot >= 0) leave(own + slot * slot_stride, memory);
}

// `row_pieces` holds the first of each row's pieces, and the end; a row may have none. Grid: rows *
// heads, VALUE_DIM / 64. The maps say where tiles of 64 tokens and 128 bytes lie.
extern "C" __global__ void __launch_bounds__(COMPUTING + 32, 1)
    scan_pieces(const int *pieces, const int *row_pieces, const void *queries, const void *keys,
                const void *reads, const void *writes, const void *scores, const float *decays,
                const float *query_factors, const float *key_factors, float *states, u16 *out,
                int num_key_heads, int num_heads, long long slot_stride) {
    const int row = blockIdx.x / num_heads, head = blockIdx.x % num_heads;
    const int begin = row_pieces[row], stop = row_pieces[row + 1];
    if (begin >= stop) return;
    Barriers &bars = *(Barriers *)(shared + AT_BARRIERS);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            // Who tells how many bytes will come, and each lane's words.
            init(&bars.full[i], 33);
            init(&bars.empty[i], COMPUTING / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < COMPUTING)
        compute(bars, pieces, begin, stop, head, states, slot_stride, out, num_heads);
    else
        bring(bars, {queries, keys, reads, writes, scores}, pieces, begin, stop, head,
              head / (num_heads / num_key_heads), num_heads, decays, query_factors, key_factors);
}
