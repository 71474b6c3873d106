// The matrix products between two attentions, for few rows, at the speed of memory, in one launch:
// output projection, gate and up, down, and the next layer's QKV, each out = x @ weight^T with the
// RMSNorm of x before it or the gated activation or the residual sum after it. Rounds where the
// separate ops round. Knows nothing of attention.
//
// All weights of the launch are one stream through a ring in shared memory that never stops: while the
// blocks of the grid wait for each other between two products, the weights of the next one arrive, and
// those of the first are on their way before the kernel ahead of this one, which does not write them,
// has ended.
//
// A cluster of blocks takes a run of a product's outputs, eight at a time (a group). Its blocks and
// their warps share k in chunks of 32: chunk c * WARPS + warp of a block is this warp's. Its part of x
// stays in registers, as the first operand of the tensor cores; weights are the second. In a chunk, k
// is permuted so that the 16 bytes a thread loads of a weight row are its fragments of two products: no
// exchange between threads is needed, each reads back from shared memory only what it copied there
// itself, and the ring needs no barrier. Sums are in an order that depends on the variant alone, never
// on how many rows there are.
//
// Defined by the build:
//   QUERY, HIDDEN, INNER, QKV   widths; zero where no product has them
//   PRODUCTS   which there are: the sum of 1 (output projection), 2 (gate and up), 4 (down), 8 (QKV)
//   WARPS      of a block
//   TILES      tiles of 16 rows; HALF: one tile of which only 8 rows are in use
//   SPLIT      blocks of a cluster
//   DEPTH      copies in flight a thread
//   BATCH      groups whose sums the warps of a block add up at once, in BUFFERS sets of parts
//   EXCHANGE   outputs, in eights, whose sums the blocks of a cluster add up at once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define THREADS (WARPS * 32)
#define PAIRS (TILES * (HALF ? 32 : 64))
#define ROWS (TILES * 16)
#define UNIT_BYTES (THREADS * 16)
#define AT_PARTS (DEPTH * UNIT_BYTES)
#define AT_RECEIVED (AT_PARTS + BUFFERS * BATCH * WARPS * PAIRS * 8)
#define AT_SCALES (AT_RECEIVED + 2 * EXCHANGE * PAIRS * 8)
#define SCALE_BYTES (HIDDEN * 2 / SPLIT)
#define AT_RUNS (AT_SCALES + 2 * SCALE_BYTES)
#define AT_SQUARES (AT_RUNS + WARPS * 4 * 32)

extern __shared__ __align__(128) char shared[];

__device__ __forceinline__ u32 shared_address(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

template <int PENDING> __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void copy(u32 to, const char *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

__device__ __forceinline__ uint4 load_shared(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

// What other blocks wrote, before or within this kernel: never through a cache of this multiprocessor.
__device__ __forceinline__ uint4 load_row(const void *at) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

__device__ __forceinline__ u32 load_two(const void *at) {
    u32 v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ float low(u32 two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(u32 two) { return __uint_as_float(two & 0xffff0000u); }

__device__ __forceinline__ u32 pack(float first, float second) {
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
}

__device__ __forceinline__ float rounded(float value) { return low(pack(value, 0.0f)); }

// Both products rounded once.
__device__ __forceinline__ u32 multiply(u32 a, u32 b) {
    u32 product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
}

__device__ __forceinline__ void mma(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void arrive_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void wait_cluster() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ u32 address_in(u32 at, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}

__device__ __forceinline__ void send(u32 to, float2 v) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
}

__device__ __forceinline__ void send(u32 to, float v) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

// Waits until all blocks of the grid are here; what they wrote before is then seen by all.
__device__ __forceinline__ void wait_grid(u32 *barrier) {
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 round, before, now;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(round) : "l"(barrier + 1) : "memory");
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(barrier) : "memory");
        if (before == gridDim.x - 1) {
            asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(barrier) : "memory");
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(barrier + 1), "r"(round + 1) : "memory");
        } else {
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier + 1) : "memory");
            } while (now == round);
        }
    }
    __syncthreads();
}

// A product of the launch: [N, K], or gate rows then up rows of it.
template <int K_, int N_, bool NORM_, bool GATED_, bool ADD_> struct Shape {
    static constexpr int K = K_, N = N_, KINDS = GATED_ ? 2 : 1;
    static constexpr bool NORM = NORM_, GATED = GATED_, ADD = ADD_;
    static constexpr int SLICE = K / 32 / SPLIT, CHUNKS = (SLICE + WARPS - 1) / WARPS;
    static constexpr int LAST_WARPS = SLICE - (CHUNKS - 1) * WARPS;
};

using Out = Shape<QUERY, HIDDEN, false, false, true>;
using GateUp = Shape<HIDDEN, INNER, true, true, false>;
using Down = Shape<INNER, HIDDEN, false, false, true>;
using Qkv = Shape<HIDDEN, QKV, true, false, false>;

struct Place {
    int thread, warp, lane, row, quarter, rank, team, teams;
};

// A warp's part of a product's weights, in shared memory: few registers, and little code wherever the
// stream may come to its end.
struct Run {
    const char *at;
    int row_bytes, chunks, left, step, other_step, unused;
};

// The stream of this thread's weights: where the next copy is from, and what is left of the product.
struct Stream {
    const char *at;
    int chunk, chunks, left, step, other_step, product;
};

template <class S> __device__ __forceinline__ void run_of(const Place &p, int &first, int &outs) {
    first = (u32)(p.team * (S::N / 8)) / (u32)p.teams;
    outs = (u32)((p.team + 1) * (S::N / 8)) / (u32)p.teams - first;
}

template <class S> __device__ __forceinline__ int own_chunks(const Place &p) {
    return S::CHUNKS - (S::LAST_WARPS < WARPS && p.warp >= S::LAST_WARPS);
}

template <class S> __device__ __forceinline__ void prepare(const Place &p, int product, const char *weight) {
    int first, outs;
    run_of<S>(p, first, outs);
    Run run;
    run.at = weight + (size_t)first * (8 * S::K * 2) + (p.rank * S::SLICE + p.warp) * 64;
    run.row_bytes = S::K * 2;
    run.chunks = own_chunks<S>(p);
    run.left = outs * S::KINDS * run.chunks;
    run.step = S::GATED ? S::N * S::K * 2 : 8 * S::K * 2;
    run.other_step = S::GATED ? 8 * S::K * 2 - S::N * S::K * 2 : 8 * S::K * 2;
    run.unused = 0;
    ((Run *)(shared + AT_RUNS))[p.warp * 4 + product] = run;
}

// On to the next product of which this warp has a part.
__device__ __forceinline__ void begin_next(Stream &stream, const Place &p) {
    do {
        if (++stream.product == 4) return;
        const Run &run = ((const Run *)(shared + AT_RUNS))[p.warp * 4 + stream.product];
        stream.at = run.at + p.row * run.row_bytes + p.quarter * 16;
        stream.chunks = run.chunks;
        stream.left = run.left;
        stream.step = run.step;
        stream.other_step = run.other_step;
    } while (stream.left == 0);
}

// Starts the next copy of the stream, if there is one, into a place of the ring.
__device__ __forceinline__ void fetch(Stream &stream, const Place &p, u32 place) {
    if (stream.left) {
        copy(place, stream.at + stream.chunk * (WARPS * 64));
        if (++stream.chunk == stream.chunks) {
            stream.chunk = 0;
            stream.at += stream.step;
            const int step = stream.step;
            stream.step = stream.other_step;
            stream.other_step = step;
        }
        if (--stream.left == 0) begin_next(stream, p);
    }
    commit();
}

// This warp's part of x, in the order of the tensor cores' fragments.
template <class S>
__device__ __forceinline__ void load_x(u32 (&a)[S::CHUNKS][TILES][2][4], const Place &p, const char *x, int rows) {
    const bool in_last = S::LAST_WARPS == WARPS || p.warp < S::LAST_WARPS;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = tile * 16 + half * 8 + p.row;
            const bool is_row = row < rows && half < 2 - HALF;
            const char *at = x + (size_t)row * (S::K * 2) + ((p.rank * S::SLICE + p.warp) * 32 + p.quarter * 8) * 2;
#pragma unroll
            for (int chunk = 0; chunk < S::CHUNKS; ++chunk) {
                uint4 v = make_uint4(0, 0, 0, 0);
                if (is_row && (chunk < S::CHUNKS - 1 || in_last)) v = load_row(at + chunk * (WARPS * 64));
                a[chunk][tile][0][half] = v.x;
                a[chunk][tile][0][2 + half] = v.y;
                a[chunk][tile][1][half] = v.z;
                a[chunk][tile][1][2 + half] = v.w;
            }
        }
}

// RMSNorm; the blocks of the cluster tell each other the sums of their squares.
template <class S>
__device__ __forceinline__ void norm_x(u32 (&a)[S::CHUNKS][TILES][2][4], const Place &p, int scale_at, float eps) {
    float *squares = (float *)(shared + AT_SQUARES), *all_squares = squares + WARPS * ROWS;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int half = 0; half < 2 - HALF; ++half) {
            float sum = 0;
#pragma unroll
            for (int chunk = 0; chunk < S::CHUNKS; ++chunk)
#pragma unroll
                for (int word = 0; word < 4; ++word) {
                    const u32 two = a[chunk][tile][word >> 1][(word & 1) * 2 + half];
                    sum = fmaf(low(two), low(two), sum);
                    sum = fmaf(high(two), high(two), sum);
                }
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (p.quarter == 0) squares[p.warp * ROWS + tile * 16 + half * 8 + p.row] = sum;
        }
    __syncthreads();
    for (int i = p.thread; i < ROWS * SPLIT; i += THREADS) {
        float sum = 0;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) sum += squares[other * ROWS + i % ROWS];
        send(address_in(shared_address(all_squares + p.rank * ROWS + i % ROWS), i / ROWS), sum);
    }
    arrive_cluster();
    wait_cluster();
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int half = 0; half < 2 - HALF; ++half) {
            float sum = 0;
#pragma unroll
            for (int other = 0; other < SPLIT; ++other)
                sum += all_squares[other * ROWS + tile * 16 + half * 8 + p.row];
            const float factor = __frcp_rn(__fsqrt_rn(sum / S::K + eps));
#pragma unroll
            for (int chunk = 0; chunk < S::CHUNKS; ++chunk) {
                if (chunk == S::CHUNKS - 1 && S::LAST_WARPS < WARPS && p.warp >= S::LAST_WARPS) continue;
                const uint4 s = *(const uint4 *)(shared + scale_at + (chunk * WARPS + p.warp) * 64 + p.quarter * 16);
                const u32 scales[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
                for (int word = 0; word < 4; ++word) {
                    u32 &two = a[chunk][tile][word >> 1][(word & 1) * 2 + half];
                    // Else the compiler keeps all values unpacked since they were squared.
                    asm volatile("" : "+r"(two));
                    two = multiply(pack(low(two) * factor, high(two) * factor), scales[word]);
                }
            }
        }
}

template <class S> __device__ __forceinline__ void finish(u16 *out, size_t at, const float2 *total, u32 before) {
    float2 value = total[0];
    if (S::GATED) {
        float2 gate = make_float2(rounded(value.x), rounded(value.y));
        gate.x = rounded(__fdividef(gate.x, 1.0f + __expf(-gate.x)));
        gate.y = rounded(__fdividef(gate.y, 1.0f + __expf(-gate.y)));
        value = make_float2(gate.x * rounded(total[S::KINDS - 1].x), gate.y * rounded(total[S::KINDS - 1].y));
    }
    if (S::ADD) value = make_float2(value.x + low(before), value.y + high(before));
    *(u32 *)(out + at) = pack(value.x, value.y);
}

// Adds up and writes what the blocks of the cluster sent this one: outputs [from, from + num).
template <class S>
__device__ __forceinline__ void settle(const Place &p, u16 *out, int rows, u32 which, int from, int num) {
    constexpr int OWNED = EXCHANGE / S::KINDS / SPLIT;
    for (int i = p.thread; i < OWNED * PAIRS; i += THREADS) {
        const int mine = i / PAIRS, pair = i % PAIRS, o = mine * SPLIT + p.rank, row = pair >> 2;
        if (o >= num || row >= rows) continue;
        const size_t at = (size_t)row * S::N + (from + o) * 8 + (pair & 3) * 2;
        const u32 before = S::ADD ? load_two(out + at) : 0;
        const float2 *received = (const float2 *)(shared + AT_RECEIVED);
        float2 total[2] = {make_float2(0, 0), make_float2(0, 0)};
#pragma unroll
        for (int other = 0; other < SPLIT; ++other)
#pragma unroll
            for (int kind = 0; kind < S::KINDS; ++kind) {
                const float2 v = received[(((which * SPLIT + other) * OWNED + mine) * S::KINDS + kind) * PAIRS + pair];
                total[kind].x += v.x;
                total[kind].y += v.y;
            }
        finish<S>(out, at, total, before);
    }
}

// Adds up what the warps of this block have of some outputs and sends it to the blocks that own them.
template <class S>
__device__ __forceinline__ void send_parts(const Place &p, int rows, u32 buffer, u32 which, int gathered, int num) {
    constexpr int OWNED = EXCHANGE / S::KINDS / SPLIT;
    for (int i = p.thread; i < BATCH / S::KINDS * PAIRS; i += THREADS) {
        const int o = i / PAIRS, pair = i % PAIRS, row = pair >> 2, place = gathered + o;
        if (o >= num || row >= rows) continue;
        const float2 *at =
            (const float2 *)(shared + AT_PARTS) + (buffer * BATCH + o * S::KINDS) * (WARPS * PAIRS) + pair;
#pragma unroll
        for (int kind = 0; kind < S::KINDS; ++kind) {
            float2 total = make_float2(0, 0);
#pragma unroll
            for (int other = 0; other < WARPS; ++other) {
                const float2 v = at[(kind * WARPS + other) * PAIRS];
                total.x += v.x;
                total.y += v.y;
            }
            const u32 to = shared_address(shared + AT_RECEIVED) +
                8 * ((((which * SPLIT + p.rank) * OWNED + place / SPLIT) * S::KINDS + kind) * PAIRS + pair);
            send(address_in(to, place % SPLIT), total);
        }
    }
}

template <class S>
__device__ __forceinline__ void product(Stream &stream, u32 &offset, const Place &p, const char *x, int scale_at,
                                        float eps, u16 *out, int rows) {
    u32 a[S::CHUNKS][TILES][2][4];
    load_x<S>(a, p, x, rows);
    if (S::NORM) norm_x<S>(a, p, scale_at, eps);
    const bool in_last = S::LAST_WARPS == WARPS || p.warp < S::LAST_WARPS;
    const u32 ring = shared_address(shared) + p.thread * 16;
    int first, outs;
    run_of<S>(p, first, outs);
    const int count = outs * S::KINDS;
    int slot = 0, done = 0;
    u32 buffer = 0, which = 0;
    // What was sent for this exchange, and what others still have to send for the last.
    int gathered = 0, waiting_first = 0, waiting = 0;

    for (int group = 0; group < count; ++group) {
        float sums[TILES][4];
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
            sums[tile][0] = sums[tile][1] = sums[tile][2] = sums[tile][3] = 0;
#pragma unroll
        for (int chunk = 0; chunk < S::CHUNKS; ++chunk) {
            if (chunk == S::CHUNKS - 1 && !in_last) continue;
            wait_copies<DEPTH - 1>();
            const u32 place = ring + offset;
            const uint4 b = load_shared(place);
            offset = offset == (DEPTH - 1) * UNIT_BYTES ? 0 : offset + UNIT_BYTES;
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) mma(sums[tile], a[chunk][tile][0], b.x, b.y);
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) mma(sums[tile], a[chunk][tile][1], b.z, b.w);
            fetch(stream, p, place);
        }
        float2 *parts = (float2 *)(shared + AT_PARTS) + ((buffer * BATCH + slot) * WARPS + p.warp) * PAIRS;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            parts[tile * 64 + p.lane] = make_float2(sums[tile][0], sums[tile][1]);
            if (!HALF) parts[tile * 64 + 32 + p.lane] = make_float2(sums[tile][2], sums[tile][3]);
        }
        if (++slot < BATCH && group + 1 < count) continue;

        const int num = slot / S::KINDS;
        if (waiting && !gathered) {
            wait_cluster();
            settle<S>(p, out, rows, which ^ 1, waiting_first, waiting);
            waiting = 0;
        }
        __syncthreads();
        send_parts<S>(p, rows, buffer, which, gathered, num);
        gathered += num;
        if (gathered == EXCHANGE / S::KINDS || group + 1 == count) {
            arrive_cluster();
            waiting = gathered;
            waiting_first = first + done + num - gathered;
            gathered = 0;
            which ^= 1;
        }
        done += num;
        slot = 0;
        buffer = BUFFERS > 1 ? buffer ^ 1 : 0;
        if (BUFFERS == 1) __syncthreads();
    }
    if (waiting) {
        wait_cluster();
        settle<S>(p, out, rows, which ^ 1, waiting_first, waiting);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) __cluster_dims__(SPLIT, 1, 1)
layer_products(const char *attended, u16 *hidden, u16 *activated, u16 *qkv, const char *out_weight,
               const char *gate_up_weight, const char *down_weight, const char *qkv_weight,
               const char *mlp_norm, const char *qkv_norm, u32 *barrier, int rows, float mlp_eps,
               float qkv_eps) {
    asm volatile("griddepcontrol.launch_dependents;");
    arrive_cluster();
    Place p;
    p.thread = threadIdx.x, p.warp = threadIdx.x >> 5, p.lane = threadIdx.x & 31;
    p.row = p.lane >> 2, p.quarter = p.lane & 3;
    p.rank = blockIdx.x % SPLIT, p.team = blockIdx.x / SPLIT, p.teams = gridDim.x / SPLIT;
    if (p.lane < 4) ((Run *)(shared + AT_RUNS))[p.warp * 4 + p.lane].left = 0;
    __syncwarp();
    if (p.lane == 0) {
#if PRODUCTS & 1
        prepare<Out>(p, 0, out_weight);
#endif
#if PRODUCTS & 2
        prepare<GateUp>(p, 1, gate_up_weight);
#endif
#if PRODUCTS & 4
        prepare<Down>(p, 2, down_weight);
#endif
#if PRODUCTS & 8
        prepare<Qkv>(p, 3, qkv_weight);
#endif
    }
    __syncwarp();
    Stream stream;
    stream.chunk = 0, stream.left = 0, stream.product = -1;
    begin_next(stream, p);
    const u32 ring = shared_address(shared) + p.thread * 16;
#pragma unroll 1
    for (int unit = 0; unit < DEPTH; ++unit) fetch(stream, p, ring + unit * UNIT_BYTES);
    for (int i = p.thread; i < SCALE_BYTES / 16; i += THREADS) {
        if (PRODUCTS & 2) ((uint4 *)(shared + AT_SCALES))[i] = ((const uint4 *)(mlp_norm + p.rank * SCALE_BYTES))[i];
        if (PRODUCTS & 8)
            ((uint4 *)(shared + AT_SCALES + SCALE_BYTES))[i] = ((const uint4 *)(qkv_norm + p.rank * SCALE_BYTES))[i];
    }
    __syncthreads();
    wait_cluster();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    u32 offset = 0;
#if PRODUCTS & 1
    product<Out>(stream, offset, p, attended, 0, 0, hidden, rows);
#endif
#if PRODUCTS & 2
    if (PRODUCTS & 1) wait_grid(barrier);
    product<GateUp>(stream, offset, p, (const char *)hidden, AT_SCALES, mlp_eps, activated, rows);
#endif
#if PRODUCTS & 4
    if (PRODUCTS & 3) wait_grid(barrier);
    product<Down>(stream, offset, p, (const char *)activated, 0, 0, hidden, rows);
#endif
#if PRODUCTS & 8
    if (PRODUCTS & 7) wait_grid(barrier);
    product<Qkv>(stream, offset, p, (const char *)hidden, AT_SCALES + SCALE_BYTES, qkv_eps, qkv, rows);
#endif
}
