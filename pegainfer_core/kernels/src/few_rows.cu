// out = x @ weight^T for a few rows of x, at the speed of memory, with what surrounds it fused in:
// the RMSNorm of x before, the gated activation or the sum with what is there after. Rounds where the
// separate ops round. Knows nothing of layers.
//
// A persistent block a multiprocessor, or a cluster of blocks that share k, has a run of outputs,
// eight at a time (a group). The warps of a block share k in chunks of 32: chunk c * WARPS + warp of
// a block is this warp's. Its part of x stays in registers, as the second operand of the tensor
// cores; weights are the first. In a chunk, k is permuted so that the 16 bytes a thread copies of a
// weight row are its fragment: each thread reads back from shared memory only what it copied there
// itself, and the ring of copies needs no barrier. Of such a fragment the tensor core takes two
// registers as row g, two as row g + 8: one product is right for the former, one for the latter.
//
// A block takes most of a multiprocessor's shared memory, so that no two share one, which would leave
// another idle and everyone waiting for the busy one. The kernel behind this one is let in at once:
// its blocks start where blocks of this one end, and their copies fill the time in which the last of
// this one's end and their own rows are not there yet.
// Sums are in an order that depends on k alone, never on how many rows there are.
//
// Defined by the build:
//   K          width of x; a multiple of 32 * SPLIT
//   ROWS       room for rows: 1 to 8, or 16
//   WARPS      of a block
//   SPLIT      blocks of a cluster, which share k
//   DEPTH      copies in flight a thread
//   BATCH      groups whose sums the warps of a block add up at once, in two sets of parts
//   EXCHANGE   groups of outputs whose sums the blocks of a cluster add up at once
//   NORM       x is normed first: 1 with a bfloat16 scale, 2 with one in float32, then rounded once
//   GATED      weight holds gate rows, then up rows; out is silu(gate) * up
//   ADD        out is added to
//   REGISTERS  most of a thread

typedef unsigned short u16;
typedef unsigned int u32;

#define THREADS (WARPS * 32)
#define SLICE (K / 32 / SPLIT)
#define CHUNKS ((SLICE + WARPS - 1) / WARPS)
#define LAST_WARPS (SLICE - (CHUNKS - 1) * WARPS)
#define HALVES ((ROWS + 7) / 8)
#define TOKENS (HALVES * 8)
#define PAIRS (ROWS * 4)
#define KINDS (1 + GATED)
#define OUTS (BATCH / KINDS)
#define OWNED (EXCHANGE / SPLIT)
#define UNIT_BYTES (THREADS * 16)
#define STEP (CHUNKS % 2 ? 1 : 2)
#define AT_PARTS (DEPTH * UNIT_BYTES)
#define AT_RECEIVED (AT_PARTS + 2 * BATCH * WARPS * PAIRS * 8)
#define AT_SCALE (AT_RECEIVED + (SPLIT > 1 ? 2 * EXCHANGE * KINDS * PAIRS * 8 : 0))
#define AT_SQUARES (AT_SCALE + SLICE * 64 * NORM)

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern __shared__ __align__(1024) unsigned char shared[];

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

__device__ __forceinline__ void let_next_in() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void wait_for_others() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ uint4 load_shared(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
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

#if ROWS > 8
// Of both halves; rounds what is exact in float32, so as if computed there.
__device__ __forceinline__ u32 product_of(u32 a, u32 b) {
    u32 two;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(two) : "r"(a), "r"(b));
    return two;
}
#endif

__device__ __forceinline__ void multiply(float (&d)[4], const uint4 &a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

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

// Two neighbouring outputs of a row, of `before` and the product's sums.
__device__ __forceinline__ u32 finished(const float2 (&sums)[KINDS], u32 before) {
    float2 value = sums[0];
#if GATED
    value = make_float2(rounded(value.x), rounded(value.y));
    value.x = rounded(__fdividef(value.x, 1.0f + __expf(-value.x)));
    value.y = rounded(__fdividef(value.y, 1.0f + __expf(-value.y)));
    value = make_float2(value.x * rounded(sums[1].x), value.y * rounded(sums[1].y));
#endif
#if ADD
    value = make_float2(value.x + low(before), value.y + high(before));
#endif
    return packed(value.x, value.y);
}

extern "C" __global__ void __maxnreg__(REGISTERS) CLUSTER
few_rows(const char *x, const char *scale, const char *weight, u16 *out, int rows, int num_outputs,
         float eps) {
    const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
    const int in_group = lane >> 2, quarter = lane & 3;
    const int rank = blockIdx.x % SPLIT, team = blockIdx.x / SPLIT, teams = gridDim.x / SPLIT;
    let_next_in();
#if SPLIT > 1
    arrive_cluster();
#endif
    // Outputs go to teams in twos, so that no team has many more than another.
    const int first = (int)((long long)team * (num_outputs >> 1) / teams) * 2;
    const int num = (int)((long long)(team + 1) * (num_outputs >> 1) / teams) * 2 - first;
    const int count = (num + 7) / 8 * KINDS;
    const size_t column = ((size_t)(rank * SLICE + warp) * 32 + quarter * 8) * 2;
    const char *own = weight + (size_t)(first + in_group) * (K * 2) + column;
    const size_t up_rows = (size_t)num_outputs * (K * 2);
    const bool in_last = CHUNKS * WARPS == SLICE || warp < LAST_WARPS;
    const u32 ring = shared_address(shared) + thread * 16;

    auto group_at = [&](int group) -> const char * {
        if (GATED) return own + (group & 1 ? up_rows : 0) + (size_t)(group >> 1) * (8 * K * 2);
        return own + (size_t)group * (8 * K * 2);
    };
    // Whether this thread's row of a group is one of the team's; groups behind the last have none.
    auto exists = [&](int group) { return group / KINDS * 8 + in_group < num; };

#pragma unroll
    for (int unit = 0; unit < DEPTH; ++unit) {
        const int group = unit / CHUNKS, chunk = unit % CHUNKS;
        if (exists(group) && (chunk < CHUNKS - 1 || in_last))
            copy(ring + unit * UNIT_BYTES, group_at(group) + chunk * (WARPS * 64));
        commit();
    }
#if NORM
    for (int i = thread; i < SLICE * 4 * NORM; i += THREADS)
        ((uint4 *)(shared + AT_SCALE))[i] = ((const uint4 *)(scale + (size_t)rank * (SLICE * 64 * NORM)))[i];
#endif
    wait_for_others();

    // This warp's part of x, as fragments; rows that are none are zeros.
    u32 b[CHUNKS][HALVES][4];
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        const int row = half * 8 + in_group;
        const char *at = x + (size_t)row * (K * 2) + column;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (row < rows && (chunk < CHUNKS - 1 || in_last)) v = load_row(at + chunk * (WARPS * 64));
            b[chunk][half][0] = v.x;
            b[chunk][half][1] = v.y;
            b[chunk][half][2] = v.z;
            b[chunk][half][3] = v.w;
        }
    }

#if NORM
    float *squares = (float *)(shared + AT_SQUARES);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        float sum = 0;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk)
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                const u32 two = b[chunk][half][word];
                sum = fmaf(low(two), low(two), sum);
                sum = fmaf(high(two), high(two), sum);
            }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (quarter == 0) squares[warp * TOKENS + half * 8 + in_group] = sum;
    }
    __syncthreads();
    const int summed = SPLIT > 1 ? SPLIT : WARPS;
#if SPLIT > 1
    wait_cluster();
    float *gathered_squares = squares + WARPS * TOKENS;
    if (thread < TOKENS) {
        float sum = 0;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) sum += squares[other * TOKENS + thread];
        for (int other = 0; other < SPLIT; ++other)
            send(gathered_squares + rank * TOKENS + thread, other, sum);
    }
    squares = gathered_squares;
    __syncwarp();
    arrive_cluster();
    wait_cluster();
#endif
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        float sum = 0;
#pragma unroll
        for (int other = 0; other < summed; ++other)
            sum += squares[other * TOKENS + half * 8 + in_group];
        const float factor = __frcp_rn(__fsqrt_rn(sum / K + eps));
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            if (chunk == CHUNKS - 1 && !in_last) continue;
            const unsigned char *scale_at =
                shared + AT_SCALE + ((chunk * WARPS + warp) * 64 + quarter * 16) * NORM;
#if NORM == 1
            const uint4 s = *(const uint4 *)scale_at;
            const u32 scales[4] = {s.x, s.y, s.z, s.w};
#endif
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                u32 &two = b[chunk][half][word];
                // Else the compiler keeps all values unpacked since they were squared.
                asm volatile("" : "+r"(two));
#if NORM == 2
                const float2 scales = *(const float2 *)(scale_at + word * 8);
                two = packed(low(two) * factor * scales.x, high(two) * factor * scales.y);
#else
                const u32 normed = packed(low(two) * factor, high(two) * factor);
#if ROWS > 8
                two = product_of(normed, scales[word]);
#else
                two = packed(low(normed) * low(scales[word]), high(normed) * high(scales[word]));
#endif
#endif
            }
        }
    }
#elif SPLIT > 1
    wait_cluster();
#endif

    constexpr int MOST = SPLIT > 1 ? OWNED : OUTS;
    constexpr int ITEMS = (MOST * PAIRS + THREADS - 1) / THREADS;
    u32 before[ITEMS];
    // Where a pair of this thread's lies in `out`, of those finished at once from group `from` of
    // outputs on; negative if it has none there.
    auto place = [&](int item, int from, int how_many) -> long long {
        const int i = thread + item * THREADS, pair = i % PAIRS, row = pair >> 2;
        const int o = SPLIT > 1 ? i / PAIRS * SPLIT + rank : i / PAIRS;
        const int output = (from + o) * 8 + (pair & 3) * 2;
        if (o >= how_many || output >= num || row >= rows) return -1;
        return (long long)row * num_outputs + first + output;
    };

    u32 offset = 0;
    int slot = 0, buffer = 0, batch_first = 0;
    [[maybe_unused]] int sent_first = 0, sent = 0;
    const char *ahead = group_at(DEPTH / CHUNKS), *further = group_at(DEPTH / CHUNKS + 1);
    for (int group = 0; group < count; ++group) {
#if ADD
        if (slot == 0 && (SPLIT == 1 || sent_first == batch_first)) {
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const long long at = place(item, batch_first, MOST * SPLIT);
                before[item] = at < 0 ? 0 : *(volatile const u32 *)(out + at);
            }
        }
#endif
        float sums[2][HALVES][4];
#pragma unroll
        for (int half = 0; half < HALVES; ++half)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[0][half][i] = sums[1][half][i] = 0;
        const bool has_ahead = exists(group + DEPTH / CHUNKS);
        const bool has_further = exists(group + DEPTH / CHUNKS + 1);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk += STEP) {
            wait_copies<DEPTH - STEP>();
            uint4 a[STEP];
            u32 places[STEP];
#pragma unroll
            for (int i = 0; i < STEP; ++i) {
                places[i] = ring + offset;
                a[i] = load_shared(places[i]);
                offset = offset == (DEPTH - 1) * UNIT_BYTES ? 0 : offset + UNIT_BYTES;
            }
#pragma unroll
            for (int i = 0; i < STEP; ++i) {
                if (chunk + i == CHUNKS - 1 && !in_last) continue;
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    const u32(&values)[4] = b[chunk + i][half];
                    multiply(sums[0][half], a[i], values[0], values[2]);
                    multiply(sums[1][half], a[i], values[1], values[3]);
                }
            }
#pragma unroll
            for (int i = 0; i < STEP; ++i) {
                const int next = chunk + i + DEPTH % CHUNKS, wrapped = next % CHUNKS;
                const bool is_there = next < CHUNKS ? has_ahead : has_further;
                if (is_there && (wrapped < CHUNKS - 1 || in_last))
                    copy(places[i], (next < CHUNKS ? ahead : further) + wrapped * (WARPS * 64));
                commit();
            }
        }
        ahead = further;
        further = group_at(group + DEPTH / CHUNKS + 2);

        float *part = (float *)(shared + AT_PARTS) + ((buffer * BATCH + slot) * WARPS + warp) * (PAIRS * 2);
#pragma unroll
        for (int half = 0; half < HALVES; ++half)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = half * 8 + quarter * 2 + i;
                if (row < ROWS) part[row * 8 + in_group] = sums[0][half][i] + sums[1][half][2 + i];
            }
        if (++slot < BATCH && group + 1 < count) continue;

        __syncthreads();
        const float2 *parts = (const float2 *)(shared + AT_PARTS) + buffer * (BATCH * WARPS * PAIRS);
        const int outs = slot / KINDS;
        auto added_up = [&](int o, int kind, int pair) {
            float2 total = make_float2(0, 0);
#pragma unroll
            for (int other = 0; other < WARPS; ++other) {
                const float2 v = parts[((o * KINDS + kind) * WARPS + other) * PAIRS + pair];
                total = make_float2(total.x + v.x, total.y + v.y);
            }
            return total;
        };
#if SPLIT == 1
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            const int i = thread + item * THREADS;
            const long long at = place(item, batch_first, outs);
            if (at < 0) continue;
            float2 total[KINDS];
#pragma unroll
            for (int kind = 0; kind < KINDS; ++kind) total[kind] = added_up(i / PAIRS, kind, i % PAIRS);
            *(u32 *)(out + at) = finished(total, ADD ? before[item] : 0);
        }
#else
        // Each block of the cluster finishes some of the outputs.
        float2 *received = (float2 *)(shared + AT_RECEIVED) + sent * (EXCHANGE * KINDS * PAIRS);
        for (int i = thread; i < outs * PAIRS; i += THREADS) {
            const int o = batch_first - sent_first + i / PAIRS;
#pragma unroll
            for (int kind = 0; kind < KINDS; ++kind)
                send(received + ((rank * OWNED + o / SPLIT) * KINDS + kind) * PAIRS + i % PAIRS, o % SPLIT,
                     added_up(i / PAIRS, kind, i % PAIRS));
        }
        const int gathered = batch_first - sent_first + outs;
        if (gathered == EXCHANGE || group + 1 == count) {
            __syncwarp();
            arrive_cluster();
            wait_cluster();
#pragma unroll
            for (int item = 0; item < ITEMS; ++item) {
                const int i = thread + item * THREADS;
                const long long at = place(item, sent_first, gathered);
                if (at < 0) continue;
                float2 total[KINDS];
#pragma unroll
                for (int kind = 0; kind < KINDS; ++kind) {
                    total[kind] = make_float2(0, 0);
#pragma unroll
                    for (int other = 0; other < SPLIT; ++other) {
                        const float2 v = received[((other * OWNED + i / PAIRS) * KINDS + kind) * PAIRS + i % PAIRS];
                        total[kind] = make_float2(total[kind].x + v.x, total[kind].y + v.y);
                    }
                }
                *(u32 *)(out + at) = finished(total, ADD ? before[item] : 0);
            }
            sent_first = batch_first + outs;
            sent ^= 1;
        }
#endif
        batch_first += outs;
        slot = 0;
        buffer ^= 1;
    }
}
