// out = x @ weight^T for more rows of x than few_rows.cu takes, at the speed of memory, with what
// surrounds it fused in: the RMSNorm of x before, the gated activation or the sum with what is there
// after. Rounds where the separate ops round. Knows nothing of layers. For sm_90a.
//
// Weights are the 64 rows of a tensor core's product and the rows of x its columns, so few rows waste
// nothing. A persistent block a multiprocessor, or a cluster of blocks that share k, keeps its part of
// x in shared memory; each of its two groups of four warps has a run of outputs of its own, a tile of
// them at a time, and a ring of weights that the copy engine fills, eight rows of 64 channels a copy.
// The blocks of a cluster add their sums of a tile up in shared memory: each finishes some of the rows.
//
// A block takes most of a multiprocessor's shared memory, and the kernel behind this one is let in at
// once, as in few_rows.cu: its ring fills while the last blocks of this one end.
//
// Defined by the build:
//   K          width of x; a multiple of 64 * SPLIT
//   ROWS       room for rows: 32 or 64
//   SPLIT      blocks of a cluster, which share k
//   TILE       rows of weights in a tile: a multiple of 8, of 16 if GATED; at most 64
//   DEPTH      times 64 channels of a tile that a group has room for
//   NORM       x is normed first: 1 with a bfloat16 scale, 2 with one in float32, then rounded once
//   GATED      weight holds gate rows, then up rows; out is silu(gate) * up
//   ADD        out is added to

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define GROUPS 2
#define GROUP_THREADS 128
#define THREADS (GROUPS * GROUP_THREADS)
#define SLICE (K / SPLIT)
#define CHUNKS (SLICE / 64)
#define ROW_BYTES 128
#define CHUNK_BYTES (ROWS * ROW_BYTES)
#define STAGE_BYTES (TILE * ROW_BYTES)
#define BOX_BYTES (8 * ROW_BYTES)
#define EIGHTS (TILE / 8 / (1 + GATED))
#define SUMS (ROWS / 2)
#define OWNED (SUMS / SPLIT)
#define PASSES (ROWS / 32)
#define AT_X (GROUPS * DEPTH * STAGE_BYTES)
#define AT_RECEIVED (AT_X + CHUNKS * CHUNK_BYTES)
#define AT_SCALE (AT_RECEIVED + (SPLIT > 1 ? THREADS * SUMS * 4 : 0))
#define AT_SQUARES (AT_SCALE + SLICE * 2 * NORM)
#define AT_BARRIERS (AT_SQUARES + (NORM ? 4 * ROWS * SPLIT : 0))
#define ROWS_BARRIER (GROUPS * DEPTH)

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern __shared__ __align__(1024) unsigned char shared[];

__device__ __forceinline__ u32 shared_address(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void init(u64 *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
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

// 64 channels of some rows; how many, the map says.
__device__ __forceinline__ void copy(u32 to, const void *map, u64 *barrier, int channel, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(shared_address(barrier)), "r"(channel), "r"(row)
                 : "memory");
}

__device__ __forceinline__ void acquire_map(const void *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

__device__ __forceinline__ void let_next_in() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void wait_for_others() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// What threads wrote to shared memory is what tensor cores and the copy engine then see.
__device__ __forceinline__ void show_others() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void sync_group(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// What other kernels wrote: never through the read-only path.
__device__ __forceinline__ uint4 load_row(const void *at) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

__device__ __forceinline__ float low(u32 two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(u32 two) { return __uint_as_float(two & 0xffff0000u); }

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

__device__ __forceinline__ float rounded(float value) { return low(packed(value, 0.0f)); }

// Of both halves; rounds what is exact in float32, so as if computed there.
__device__ __forceinline__ u32 product_of(u32 a, u32 b) {
    u32 two;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(two) : "r"(a), "r"(b));
    return two;
}

// A 128-byte-swizzled operand: groups of eight rows are 1,024 bytes apart.
__device__ __forceinline__ u64 operand(u32 at) {
    return (u64)((at & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Sums are in registers of a product under way until here.
__device__ __forceinline__ void pin(float (&values)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

#define OUT8(d, i)                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),      \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define NAMES16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"

// 64 rows of weights and 16 channels of them, times all rows of x.
#if ROWS == 32
__device__ __forceinline__ void multiply(float (&d)[SUMS], u64 a, u64 b, int adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " NAMES16
                 "}, %16, %17, p, 1, 1, 0, 0;\n}"
                 : OUT8(d, 0), OUT8(d, 8)
                 : "l"(a), "l"(b), "r"(adds));
}
#else
__device__ __forceinline__ void multiply(float (&d)[SUMS], u64 a, u64 b, int adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " NAMES16
                 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : OUT8(d, 0), OUT8(d, 8), OUT8(d, 16), OUT8(d, 24)
                 : "l"(a), "l"(b), "r"(adds));
}
#endif

#if SPLIT > 1
__device__ __forceinline__ void arrive_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void wait_cluster() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ u32 address_in(const void *at, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(rank));
    return there;
}

__device__ __forceinline__ void send(float *to, u32 rank, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in(to, rank)), "f"(value) : "memory");
}

__device__ __forceinline__ void send(float2 *to, u32 rank, float2 v) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address_in(to, rank)), "f"(v.x),
                 "f"(v.y)
                 : "memory");
}
#endif

#if NORM
// This block's part of x, normed, where tensor cores read it: eight threads read a row.
__device__ __forceinline__ void keep_rows(const char *x, int rows, int rank, float eps) {
    const int first_row = threadIdx.x >> 3, part = threadIdx.x & 7;
    uint4 values[PASSES][CHUNKS];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int row = pass * 32 + first_row;
        const char *at = x + (size_t)row * (K * 2) + (size_t)rank * (SLICE * 2) + part * 16;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk)
            values[pass][chunk] =
                row < rows ? load_row(at + chunk * ROW_BYTES) : make_uint4(0, 0, 0, 0);
    }
    float factors[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        float sum = 0;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const uint4 &v = values[pass][chunk];
            const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                sum = fmaf(low(words[word]), low(words[word]), sum);
                sum = fmaf(high(words[word]), high(words[word]), sum);
            }
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        sum += __shfl_xor_sync(~0u, sum, 4);
        factors[pass] = sum;
    }
#if SPLIT > 1
    float *squares = (float *)(shared + AT_SQUARES);
    wait_cluster();
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass)
        if (part < SPLIT) send(squares + rank * ROWS + pass * 32 + first_row, part, factors[pass]);
    __syncwarp();
    arrive_cluster();
    wait_cluster();
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        factors[pass] = 0;
#pragma unroll
        for (int other = 0; other < SPLIT; ++other)
            factors[pass] += squares[other * ROWS + pass * 32 + first_row];
    }
#endif
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass)
        factors[pass] = __frcp_rn(__fsqrt_rn(factors[pass] / K + eps));
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        const unsigned char *scale_at = shared + AT_SCALE + (chunk * 64 + part * 8) * 2 * NORM;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const uint4 &v = values[pass][chunk];
            u32 words[4] = {v.x, v.y, v.z, v.w};
            const float factor = factors[pass];
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                u32 &two = words[word];
                // Else the compiler keeps all values unpacked since they were squared.
                asm volatile("" : "+r"(two));
#if NORM == 2
                const float2 scales = *(const float2 *)(scale_at + word * 8);
                two = packed(low(two) * factor * scales.x, high(two) * factor * scales.y);
#else
                two = product_of(packed(low(two) * factor, high(two) * factor),
                                 *(const u32 *)(scale_at + word * 4));
#endif
            }
            const int row = pass * 32 + first_row;
            *(uint4 *)(shared + AT_X + chunk * CHUNK_BYTES + row * ROW_BYTES + ((part ^ (row & 7)) << 4)) =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) CLUSTER
more_rows(const char *x, const char *scale, const void *weight, u16 *out, int rows, int num_outputs,
          float eps) {
    const int thread = threadIdx.x, group = thread / GROUP_THREADS, member = thread % GROUP_THREADS;
    const int lane = thread & 31, rank = blockIdx.x % SPLIT;
    let_next_in();
#if SPLIT > 1
    arrive_cluster();
#endif
    u64 *const barriers = (u64 *)(shared + AT_BARRIERS), *const full = barriers + group * DEPTH;
    if (thread < GROUPS * DEPTH + 1) {
        init(barriers + thread);
        show_others();
    }
    __syncthreads();

    // Outputs go to the groups of teams in eights.
    const int holder = blockIdx.x / SPLIT * GROUPS + group, holders = gridDim.x / SPLIT * GROUPS;
    const int all = num_outputs >> 3;
    const int first = (int)((long long)holder * all / holders);
    const int num = (int)((long long)(holder + 1) * all / holders) - first;
    const int tiles = ((all + holders - 1) / holders + EIGHTS - 1) / EIGHTS;
    const u32 ring = shared_address(shared) + group * (DEPTH * STAGE_BYTES);

    // Each lane of a group's first warp copies eight rows. If gated, every other eight are gates: a
    // thread finds in its sums what belongs together.
    const bool copies = member < TILE / 8;
    const int eight = GATED ? lane >> 1 : lane;
    const int skipped = GATED && lane & 1 ? num_outputs : 0;
    int ahead_tile = 0, ahead_chunk = 0, ahead_slot = 0, ahead_from = 0, ahead_eights = num / tiles;
    auto copy_next = [&] {
        if (ahead_tile < tiles) {
            u64 *barrier = full + ahead_slot;
            if (lane == 0) expect(barrier, ahead_eights * (1 + GATED) * BOX_BYTES);
            __syncwarp();
            if (copies && eight < ahead_eights)
                copy(ring + ahead_slot * STAGE_BYTES + lane * BOX_BYTES, weight, barrier,
                     rank * SLICE + ahead_chunk * 64, skipped + (first + ahead_from + eight) * 8);
        }
        ahead_slot = ahead_slot == DEPTH - 1 ? 0 : ahead_slot + 1;
        if (++ahead_chunk == CHUNKS) {
            ahead_chunk = 0;
            ++ahead_tile;
            ahead_from = num * ahead_tile / tiles;
            ahead_eights = num * (ahead_tile + 1) / tiles - ahead_from;
        }
    };
    if (member < 32) {
        if (copies) acquire_map(weight);
#pragma unroll 1
        for (int unit = 0; unit < DEPTH; ++unit) copy_next();
    }
#if NORM
    for (int i = thread; i < SLICE / 8 * NORM; i += THREADS)
        ((uint4 *)(shared + AT_SCALE))[i] = ((const uint4 *)(scale + (size_t)rank * (SLICE * 2 * NORM)))[i];
    __syncthreads();
    wait_for_others();
    keep_rows(x, rows, rank, eps);
    show_others();
    __syncthreads();
#else
    wait_for_others();
    u64 *const rows_there = barriers + ROWS_BARRIER;
    if (thread < 32) {
        if (lane == 0) expect(rows_there, CHUNKS * CHUNK_BYTES);
        __syncwarp();
        for (int chunk = lane; chunk < CHUNKS; chunk += 32)
            copy(shared_address(shared) + AT_X + chunk * CHUNK_BYTES, x, rows_there,
                 rank * SLICE + chunk * 64, 0);
    }
#if SPLIT > 1
    wait_cluster();
#endif
    wait(rows_there, 0);
#endif

    const int output_row = (member >> 5) * (GATED ? 8 : 16) + (lane >> 2);
    const u32 kept = shared_address(shared) + AT_X;
    float sums[SUMS];
    int slot = 0;
    u32 parity = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        const int from = num * tile / tiles, outs = (num * (tile + 1) / tiles - from) * 8;
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            wait(full + slot, parity);
            mma_fence();
            const u32 a = ring + slot * STAGE_BYTES, b = kept + chunk * CHUNK_BYTES;
#pragma unroll
            for (int step = 0; step < 4; ++step)
                multiply(sums, operand(a + step * 32), operand(b + step * 32), chunk > 0 || step > 0);
            mma_commit();
            if (++slot == DEPTH) {
                slot = 0;
                parity ^= 1;
            }
            // All warps of the group are done with what was there a unit ago.
            mma_wait<1>();
            sync_group(group);
            if (member < 32 && (tile || chunk)) copy_next();
        }
        mma_wait<0>();
        pin(sums);

        // Where a sum of this thread goes: of which eight rows, which half of the tile.
        auto output_at = [&](int rows_from, int half, int i) -> long long {
            const int row = rows_from * 8 + (lane & 3) * 2 + i, output = output_row + half * 8;
            if (row >= rows || output >= outs) return -1;
            return (long long)row * num_outputs + (first + from) * 8 + output;
        };
        constexpr int HALVES = GATED ? 1 : 2;
        const int begin = SPLIT > 1 ? rank * OWNED : 0;
        u16 before[OWNED];
#if ADD
#pragma unroll
        for (int i = 0; i < OWNED; ++i) {
            const long long at = output_at((begin + i) >> 2, (begin + i) >> 1 & 1, i & 1);
            before[i] = at < 0 ? 0 : *(volatile const u16 *)(out + at);
        }
#endif
#if SPLIT > 1
        // Nobody still reads what the tile before left.
        if (tile) wait_cluster();
        float2 *received = (float2 *)(shared + AT_RECEIVED);
#pragma unroll
        for (int i = 0; i < SUMS; i += 2)
            send(received + (rank * (OWNED / 2) + i % OWNED / 2) * THREADS + thread, i / OWNED,
                 make_float2(sums[i], sums[i + 1]));
        __syncwarp();
        arrive_cluster();
        wait_cluster();
        float total[OWNED];
#pragma unroll
        for (int i = 0; i < OWNED; i += 2) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int other = 0; other < SPLIT; ++other) {
                const float2 v = received[(other * (OWNED / 2) + i / 2) * THREADS + thread];
                sum = make_float2(sum.x + v.x, sum.y + v.y);
            }
            total[i] = sum.x;
            total[i + 1] = sum.y;
        }
        if (tile + 1 < tiles) {
            __syncwarp();
            arrive_cluster();
        }
#else
        float(&total)[OWNED] = sums;
#endif
#pragma unroll
        for (int i = 0; i < OWNED; ++i) {
            const int index = begin + i, half = index >> 1 & 1;
            if (half >= HALVES) continue;
            const long long at = output_at(index >> 2, half, index & 1);
            if (at < 0) continue;
            float value = total[i];
#if GATED
            value = rounded(value);
            value = rounded(__fdividef(value, 1.0f + __expf(-value)));
            value *= rounded(total[i + 2]);
#endif
#if ADD
            value += low(before[i]);
#endif
            out[at] = (u16)packed(value, 0.0f);
        }
    }
}
