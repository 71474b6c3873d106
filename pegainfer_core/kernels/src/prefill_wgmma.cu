// Causal attention of many query tokens a row over paged keys and values, for sm_90a.
//
// Keys and values come straight from the pages: one bulk tensor copy a page and 64 channels, so that
// any order of pages is as good as contiguous memory. The query heads of one key head are packed into
// the 128 rows of a tile and share what is loaded. One warp copies, two groups of four warps compute:
// while one is at its softmax the other has the tensor cores, and each weighs a block while the sums
// of the block before are under way. A fixed grid takes pieces of work, longest first, from a list of
// the step; the pieces of a split context are joined in order by whichever ends last. Knows neither
// requests nor how the list is made.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Defined by the build: HEAD_DIM (64, 128, 256), GROUP (query heads a key head), PAGE (tokens).
#define BLOCK_M 128
#define BLOCK_N (HEAD_DIM > 128 ? 64 : 128)
#define STAGES 2
#define CHUNKS (HEAD_DIM / 64)
#define TILE_TOKENS (BLOCK_M / GROUP)
#define PAGES_A_BLOCK (BLOCK_N / PAGE)
#define ITEM_INTS 8
#define ROW_BYTES 128
#define CHUNK_Q (BLOCK_M * ROW_BYTES)
#define CHUNK_KV (BLOCK_N * ROW_BYTES)
#define STAGE_KV (CHUNKS * CHUNK_KV)
#define OUT_ROW (HEAD_DIM * 2 + 16)
#define STAGES_OUT (HEAD_DIM <= 128)
#define AT_K (CHUNKS * CHUNK_Q)
#define AT_V (AT_K + STAGES * STAGE_KV)
#define AT_OUT (AT_V + STAGES * STAGE_KV)
#define AT_BARRIERS (AT_OUT + STAGES_OUT * BLOCK_M * OUT_ROW)
#define NOTHING __int_as_float(0xFF800000)

struct Barriers {
    u64 q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    u64 work_full[2], work_empty[2];
    int work[2][ITEM_INTS + 2];
    int is_last;
};

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

__device__ __forceinline__ void copy_page(u32 to, const void *map, u64 *barrier, int channel, int head,
                                          int plane, int page) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(shared_address(barrier)), "r"(channel), "r"(head), "r"(0), "r"(plane),
                 "r"(page)
                 : "memory");
}

__device__ __forceinline__ void copy_queries(u32 to, const void *map, u64 *barrier, int channel,
                                             int head, int token) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(shared_address(barrier)), "r"(channel), "r"(head), "r"(token)
                 : "memory");
}

__device__ __forceinline__ void acquire_map(const void *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

template <int ID, int THREADS> __device__ __forceinline__ void sync_named() {
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}

// A 128-byte-swizzled operand: groups of eight rows are 1,024 bytes apart. `lead_bytes` separates
// chunks of 64 channels where channels are the columns of the operand.
__device__ __forceinline__ u64 operand(u32 at, u32 lead_bytes) {
    return (u64)((at & 0x3FFFF) >> 4) | (u64)(lead_bytes >> 4) << 16 | (u64)(1024 >> 4) << 32 |
           (u64)1 << 62;
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
#define NAMES64                                                                                     \
    NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "     \
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Both operands in shared memory, channels along the rows; 64 rows, 2 * COUNT columns.
__device__ __forceinline__ void mma_shared(float (&d)[64], u64 a, u64 b, int adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NAMES64
                 "}, %64, %65, p, 1, 1, 0, 0;\n}"
                 : OUT32(d, 0), OUT32(d, 32)
                 : "l"(a), "l"(b), "r"(adds));
}

__device__ __forceinline__ void mma_shared(float (&d)[32], u64 a, u64 b, int adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " NAMES32
                 "}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : OUT32(d, 0)
                 : "l"(a), "l"(b), "r"(adds));
}

// The left operand in registers, the right one in shared memory with channels along its columns.
template <int AT, int COUNT>
__device__ __forceinline__ void mma_weights_128(float (&d)[COUNT], const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NAMES64
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
                 : OUT32(d, AT), OUT32(d, AT + 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void mma_weights_64(float (&d)[32], const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " NAMES32
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                 : OUT32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What a thread keeps of a tile: of two of its rows, every fourth pair of columns.
struct Tile {
    float out[HEAD_DIM / 2];
    u32 weights[BLOCK_N / 4];
    float best[2], total[2];
};

__device__ __forceinline__ void start_scores(float (&scores)[BLOCK_N / 2], u32 q, u32 k) {
    mma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        u32 inside = (step % 4) * 32;
        mma_shared(scores, operand(q + (step / 4) * CHUNK_Q + inside, 16),
                   operand(k + (step / 4) * CHUNK_KV + inside, 16), step > 0);
    }
    mma_commit();
}

__device__ __forceinline__ void start_sums(Tile &tile, u32 v) {
    mma_fence();
#pragma unroll
    for (int step = 0; step < BLOCK_N / 16; ++step) {
        const u32 *a = tile.weights + 4 * step;
        u32 at = v + step * 16 * ROW_BYTES;
#if HEAD_DIM == 64
        mma_weights_64(tile.out, a, operand(at, CHUNK_KV));
#else
        mma_weights_128<0>(tile.out, a, operand(at, CHUNK_KV));
#if HEAD_DIM == 256
        mma_weights_128<64>(tile.out, a, operand(at + 2 * CHUNK_KV, CHUNK_KV));
#endif
#endif
    }
    mma_commit();
}

// The running softmax: scores become weights; returns by how much earlier sums shrink.
template <bool MASKED>
__device__ __forceinline__ void weigh(Tile &tile, float (&scores)[BLOCK_N / 2], float scale,
                                      float (&shrink)[2], int first_key, const int (&limits)[2]) {
    int lane = threadIdx.x % 32;
    if (MASKED) {
#pragma unroll
        for (int i = 0; i < BLOCK_N / 2; ++i) {
            int key = first_key + (i / 4) * 8 + (lane % 4) * 2 + i % 2;
            if (key > limits[i / 2 % 2]) scores[i] = NOTHING;
        }
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        float most = scores[2 * row];
#pragma unroll
        for (int i = 0; i < BLOCK_N / 8; ++i)
            most = fmaxf(most, fmaxf(scores[4 * i + 2 * row], scores[4 * i + 2 * row + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        most = fmaxf(tile.best[row], most * scale);
        // A row that sees nothing so far has no maximum to subtract.
        float base = MASKED && most == NOTHING ? 0.0f : most;
        shrink[row] = power(tile.best[row] - base);
        tile.best[row] = most;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < BLOCK_N / 8; ++i) {
            float &low = scores[4 * i + 2 * row], &high = scores[4 * i + 2 * row + 1];
            low = power(fmaf(low, scale, -base));
            high = power(fmaf(high, scale, -base));
            sum += low + high;
        }
        tile.total[row] = tile.total[row] * shrink[row] + sum;
    }
}

__device__ __forceinline__ void pack_weights(Tile &tile, const float (&scores)[BLOCK_N / 2]) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 4; ++i) tile.weights[i] = packed(scores[2 * i], scores[2 * i + 1]);
}

// Values behind the last key of a tile may be anything: a weight of zero does not hide what is not a
// number. Whole pages behind it were never copied; this clears the rest of the last one.
__device__ __forceinline__ void clear_values(u32 v, int from, int thread, int id) {
    int to = (from + PAGE - 1) / PAGE * PAGE;
    for (int i = thread; i < (to - from) * CHUNKS * 8; i += 128) {
        u32 row = from + i / (CHUNKS * 8), part = i % (CHUNKS * 8);
        u32 at = v + (part / 8) * CHUNK_KV + row * ROW_BYTES + (part % 8) * 16;
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

struct Work {
    int token, count, position, begin, end, table, first_part, part, num_parts, head;
};

__device__ __forceinline__ Work read_work(const int *from) {
    return {from[0], from[1], from[2], from[3],         from[4],
            from[5], from[6], from[7] & 0xFFFF, from[7] >> 16, from[ITEM_INTS]};
}

__device__ __forceinline__ void copy_work(unsigned char *shared, Barriers &bars, const void *q_map,
                                          const void *kv_map, const int *items, const int *num_items,
                                          const int *page_table, int *state, int num_kv_heads,
                                          int layer) {
    int lane = threadIdx.x % 32;
    u32 base = shared_address(shared);
    acquire_map(q_map);
    acquire_map(kv_map);
    int total = num_items[0] * num_kv_heads;
    int index = blockIdx.x;
    u32 block = 0;
    for (u32 round = 0;; ++round) {
        int slot = round % 2;
        wait(&bars.work_empty[slot], round / 2 % 2 ^ 1);
        bool more = index < total;
        if (more && lane < ITEM_INTS)
            bars.work[slot][lane] = items[index / num_kv_heads * ITEM_INTS + lane];
        if (lane == 0) bars.work[slot][ITEM_INTS] = more ? index % num_kv_heads : -1;
        __syncwarp();
        if (lane == 0) arrive(&bars.work_full[slot]);
        if (!more) break;
        Work work = read_work(bars.work[slot]);
        int next = lane == 0 ? atomicAdd(state, 1) : 0;
        wait(&bars.q_empty, round % 2 ^ 1);
        if (lane == 0) {
            expect(&bars.q_full, CHUNKS * GROUP * TILE_TOKENS * ROW_BYTES);
            for (int chunk = 0; chunk < CHUNKS; ++chunk)
                copy_queries(base + chunk * CHUNK_Q, q_map, &bars.q_full, chunk * 64,
                             work.head * GROUP, work.token);
        }
        int last_page = (work.end - 1) / PAGE;
        for (int n = (work.end - 1) / BLOCK_N; n >= work.begin / BLOCK_N; --n, ++block) {
            int stage = block % STAGES;
            u32 parity = block / STAGES % 2 ^ 1;
            // Half of the lanes copy keys, half values; each has a page and a chunk of its own.
            for (int first = 0; first < PAGES_A_BLOCK * CHUNKS; first += 16) {
                int mine = first + lane % 16;
                bool copies = mine < PAGES_A_BLOCK * CHUNKS;
                int at = n * PAGES_A_BLOCK + mine / CHUNKS;
                // A page that does not exist reads as zeros.
                int page = copies && at <= last_page ? page_table[work.table + at] : -1;
                u32 inside = (mine % CHUNKS) * CHUNK_KV + (mine / CHUNKS) * PAGE * ROW_BYTES;
                if (first == 0) {
                    wait(&bars.k_empty[stage], parity);
                    if (lane == 0) expect(&bars.k_full[stage], STAGE_KV);
                    __syncwarp();
                }
                if (copies && lane < 16)
                    copy_page(base + AT_K + stage * STAGE_KV + inside, kv_map, &bars.k_full[stage],
                              mine % CHUNKS * 64, work.head, 2 * layer, page);
                if (first == 0) {
                    wait(&bars.v_empty[stage], parity);
                    if (lane == 0) expect(&bars.v_full[stage], STAGE_KV);
                    __syncwarp();
                }
                if (copies && lane >= 16)
                    copy_page(base + AT_V + stage * STAGE_KV + inside, kv_map, &bars.v_full[stage],
                              mine % CHUNKS * 64, work.head, 2 * layer + 1, page);
            }
        }
        index = gridDim.x + __shfl_sync(~0u, next, 0);
    }
    // The last block to end leaves the counters as it found them.
    if (lane == 0 && atomicAdd(state + 1, 1) == (int)gridDim.x - 1) {
        state[0] = 0;
        state[1] = 0;
        __threadfence();
    }
}

__device__ __forceinline__ void store_tile(const Tile &tile, const Work &work, unsigned char *shared,
                                           int first_row, bf16 *out, int num_heads) {
    int lane = threadIdx.x % 32;
    int num_rows = work.count * GROUP;
#if STAGES_OUT
    unsigned char *staged = shared + AT_OUT + first_row * OUT_ROW;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 4; ++i) {
        int row = lane / 4 + i % 2 * 8;
        *(u32 *)(staged + row * OUT_ROW + (i / 2) * 16 + lane % 4 * 4) =
            packed(tile.out[2 * i], tile.out[2 * i + 1]);
    }
    __syncwarp();
    constexpr int PARTS = HEAD_DIM / 8;
#pragma unroll
    for (int i = 0; i < 16 * PARTS / 32; ++i) {
        int row = (i * 32 + lane) / PARTS, part = (i * 32 + lane) % PARTS;
        int r = first_row + row;
        long long at = (long long)(work.token + r / GROUP) * num_heads + work.head * GROUP + r % GROUP;
        if (r < num_rows)
            *(uint4 *)(out + at * HEAD_DIM + part * 8) =
                *(const uint4 *)(staged + row * OUT_ROW + part * 16);
    }
#else
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = first_row + lane / 4 + half * 8;
        long long at = (long long)(work.token + r / GROUP) * num_heads + work.head * GROUP + r % GROUP;
        if (r < num_rows)
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; ++i)
                *(u32 *)(out + at * HEAD_DIM + i * 8 + lane % 4 * 2) =
                    packed(tile.out[4 * i + 2 * half], tile.out[4 * i + 2 * half + 1]);
    }
#endif
}

__device__ __forceinline__ void join_parts(const Work &work, Barriers &bars, const float *sums,
                                           const float *stats, int *joined, bf16 *out,
                                           int num_kv_heads) {
    int thread = threadIdx.x - 128, lane = thread % 32;
    __threadfence();
    sync_named<1, 256>();
    if (thread == 0) {
        int *counter = joined + work.first_part * num_kv_heads + work.head;
        int before = atomicAdd(counter, 1);
        bars.is_last = before == work.num_parts - 1;
        if (bars.is_last) *counter = 0;
        __threadfence();
    }
    sync_named<1, 256>();
    if (!bars.is_last) return;
    long long stride = (long long)num_kv_heads * BLOCK_M;
    for (int r = thread / 32; r < work.count * GROUP; r += 8) {
        long long at = ((long long)work.first_part * num_kv_heads + work.head) * BLOCK_M + r;
        float best = NOTHING, total = 0.0f;
        float sum[HEAD_DIM / 32];
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 32; ++i) sum[i] = 0.0f;
#pragma unroll 4
        for (int part = 0; part < work.num_parts; ++part, at += stride) {
            float2 its = __ldcg((const float2 *)(stats + 2 * at));
            float most = fmaxf(best, its.x);
            float base = most == NOTHING ? 0.0f : most;
            float shrink = power(best - base), grow = power(its.x - base);
            best = most;
            total = total * shrink + its.y * grow;
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 32; i += 2) {
                float2 value = __ldcg((const float2 *)(sums + at * HEAD_DIM + i * 32 + lane * 2));
                sum[i] = sum[i] * shrink + value.x * grow;
                sum[i + 1] = sum[i + 1] * shrink + value.y * grow;
            }
        }
        long long to = (long long)(work.token + r / GROUP) * (num_kv_heads * GROUP) +
                       work.head * GROUP + r % GROUP;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 32; i += 2)
            *(u32 *)(out + to * HEAD_DIM + i * 32 + lane * 2) =
                packed(sum[i] / total, sum[i + 1] / total);
    }
}

__device__ __forceinline__ void store_part(const Tile &tile, const Work &work, int first_row,
                                           float *sums, float *stats, int num_kv_heads) {
    int lane = threadIdx.x % 32;
    long long slot = (long long)(work.first_part + work.part) * num_kv_heads + work.head;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = first_row + lane / 4 + half * 8;
        long long at = slot * BLOCK_M + r;
        if (r >= work.count * GROUP) continue;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i)
            *(float2 *)(sums + at * HEAD_DIM + i * 8 + lane % 4 * 2) =
                make_float2(tile.out[4 * i + 2 * half], tile.out[4 * i + 2 * half + 1]);
        if (lane % 4 == 0)
            *(float2 *)(stats + 2 * at) = make_float2(tile.best[half], tile.total[half]);
    }
}

template <bool MASKED>
__device__ __forceinline__ void step(Tile &tile, Barriers &bars, u32 base, u32 q, u32 &block, int n,
                                     const Work &work, float scale, const int (&limits)[2]) {
    int lane = threadIdx.x % 32;
    float scores[BLOCK_N / 2], shrink[2];
    u32 before = block++;
    int stage = block % STAGES, stage_before = before % STAGES;
    wait(&bars.k_full[stage], block / STAGES % 2);
    start_scores(scores, q, base + AT_K + stage * STAGE_KV);
    wait(&bars.v_full[stage_before], before / STAGES % 2);
    start_sums(tile, base + AT_V + stage_before * STAGE_KV);
    mma_wait<1>();
    pin(scores);
    if (lane == 0) arrive(&bars.k_empty[stage]);
    weigh<MASKED>(tile, scores, scale, shrink, n * BLOCK_N, limits);
    mma_wait<0>();
    pin(tile.out);
    if (lane == 0) arrive(&bars.v_empty[stage_before]);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) tile.out[i] *= shrink[i / 2 % 2];
    pack_weights(tile, scores);
}

__device__ __forceinline__ void compute_work(unsigned char *shared, Barriers &bars, float *sums,
                                             float *stats, int *joined, bf16 *out,
                                             int num_kv_heads, float scale) {
    int lane = threadIdx.x % 32;
    int turn = threadIdx.x / 128 - 1;
    int first_row = (threadIdx.x / 32 - 4) * 16;
    u32 base = shared_address(shared);
    u32 q = base + turn * 64 * ROW_BYTES;
    u32 block = 0;
    for (u32 round = 0;; ++round) {
        wait(&bars.work_full[round % 2], round / 2 % 2);
        Work work = read_work(bars.work[round % 2]);
        __syncwarp();
        if (lane == 0) arrive(&bars.work_empty[round % 2]);
        if (work.head < 0) return;
        int n = (work.end - 1) / BLOCK_N;
        int limits[2];
#pragma unroll
        for (int row = 0; row < 2; ++row)
            limits[row] = work.position + (first_row + lane / 4 + row * 8) / GROUP;
        Tile tile;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) tile.out[i] = 0.0f;
        tile.best[0] = tile.best[1] = NOTHING;
        tile.total[0] = tile.total[1] = 0.0f;
        wait(&bars.q_full, round % 2);
        {
            float scores[BLOCK_N / 2], shrink[2];
            int stage = block % STAGES;
            wait(&bars.k_full[stage], block / STAGES % 2);
            start_scores(scores, q, base + AT_K + stage * STAGE_KV);
            mma_wait<0>();
            pin(scores);
            if (lane == 0) arrive(&bars.k_empty[stage]);
            weigh<true>(tile, scores, scale, shrink, n * BLOCK_N, limits);
            pack_weights(tile, scores);
            if (work.end % PAGE) {
                wait(&bars.v_full[stage], block / STAGES % 2);
                clear_values(base + AT_V + stage * STAGE_KV, work.end - n * BLOCK_N,
                             threadIdx.x % 128, 2 + turn);
            }
        }
        // Blocks that end behind the tile's first query are masked.
        int seen_by_all = max((work.position + 1) / BLOCK_N, work.begin / BLOCK_N);
        for (--n; n >= seen_by_all; --n)
            step<true>(tile, bars, base, q, block, n, work, scale, limits);
        for (; n >= work.begin / BLOCK_N; --n)
            step<false>(tile, bars, base, q, block, n, work, scale, limits);
        if (lane == 0) arrive(&bars.q_empty);
        int stage = block % STAGES;
        wait(&bars.v_full[stage], block / STAGES % 2);
        start_sums(tile, base + AT_V + stage * STAGE_KV);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            tile.total[row] += __shfl_xor_sync(~0u, tile.total[row], 1);
            tile.total[row] += __shfl_xor_sync(~0u, tile.total[row], 2);
        }
        mma_wait<0>();
        pin(tile.out);
        if (lane == 0) arrive(&bars.v_empty[stage]);
        ++block;
        if (work.num_parts == 1) {
            float inverse[2] = {1.0f / tile.total[0], 1.0f / tile.total[1]};
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 2; ++i) tile.out[i] *= inverse[i / 2 % 2];
            store_tile(tile, work, shared, first_row, out, num_kv_heads * GROUP);
        } else {
            store_part(tile, work, first_row, sums, stats, num_kv_heads);
            join_parts(work, bars, sums, stats, joined, out, num_kv_heads);
        }
    }
}

// `items` holds for each piece: first query token in the step, how many, position of the first, first
// and end key, where its row's page table begins, the first part of its tile, and part | parts << 16;
// a part begins at a multiple of BLOCK_N. `sums` and `stats` have room for BLOCK_M rows of a part and
// key head. `joined` and the two values of `state` are zero, and zero again at the end. `scale`
// includes log2(e). The maps say where queries and pages lie; grid: any.
extern "C" __global__ void __launch_bounds__(384, 1)
    attend_tiles_wgmma(const void *q_map, const void *kv_map, const int *items, const int *num_items,
                       const int *page_table, float *sums, float *stats, int *joined, int *state,
                       bf16 *out, int num_kv_heads, int layer, float scale) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Barriers &bars = *(Barriers *)(shared + AT_BARRIERS);
    if (threadIdx.x == 0) {
        init(&bars.q_full, 1);
        init(&bars.q_empty, 8);
        for (int i = 0; i < STAGES; ++i) {
            init(&bars.k_full[i], 1);
            init(&bars.k_empty[i], 8);
            init(&bars.v_full[i], 1);
            init(&bars.v_empty[i], 8);
        }
        for (int i = 0; i < 2; ++i) {
            init(&bars.work_full[i], 1);
            init(&bars.work_empty[i], 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x < 32)
            copy_work(shared, bars, q_map, kv_map, items, num_items, page_table, state, num_kv_heads,
                      layer);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        compute_work(shared, bars, sums, stats, joined, out, num_kv_heads, scale);
    }
}
