// Attention of one query token a row over paged keys and values, split over the context; from sm_90.
//
// A grid that is fixed for a batch size takes pieces of contexts from a list of the step: one
// recorded graph serves short and long contexts. Each warp has sixteen keys at a time, brought by bulk
// tensor copies into a ring of its own; the query heads of one key head go through the tensor cores
// together. With FUSED, head norms, RoPE and the KV write of the new token are done on the way, and
// the copies of older tokens are under way before the product that makes the queries has ended.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Defined by the build: HEAD_DIM (64, 128, 256), GROUP (query heads a key head, up to 16), PAGE
// (tokens, a multiple of 16), HALF (half the rotary width), FUSED, OVERLAP, STAGES.
#define WARPS 4
#define KEYS 16
#define CHUNKS (HEAD_DIM / 64)
#define CHUNK_BYTES (KEYS * 128)
#define STAGE_BYTES (2 * CHUNKS * CHUNK_BYTES)
#define AT_QUERY (WARPS * STAGES * STAGE_BYTES)
#define AT_SCRATCH (AT_QUERY + CHUNKS * CHUNK_BYTES)
#define AT_SMALL (AT_SCRATCH + WARPS * HEAD_DIM * 4)
#define ROWS (GROUP > 8 ? 16 : 8)
#define LANE_DIMS (HEAD_DIM / 32)
#define ITEM_INTS 8
#define NOTHING __int_as_float(0xFF800000)

struct Small {
    u64 full[WARPS][STAGES];
    float best[WARPS][ROWS], total[WARPS][ROWS];
    int is_last;
};

__device__ __forceinline__ u32 shared_address(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
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

__device__ __forceinline__ void copy_keys(u32 to, const void *map, u64 *barrier, int channel, int head,
                                          int token, int plane, int page) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(shared_address(barrier)), "r"(channel), "r"(head), "r"(token),
                 "r"(plane), "r"(page)
                 : "memory");
}

__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void load_turned(u32 (&to)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float widened(bf16 value) { return __int_as_float((u32)value << 16); }

__device__ __forceinline__ float rounded(float value) {
    return __int_as_float(packed(0.0f, value) & 0xFFFF0000);
}

// Where 16 bytes of a row lie in a chunk of 128-byte rows, as the copy engine swizzles them.
__device__ __forceinline__ u32 unit(int row, int index) { return row * 128 + ((index ^ row % 8) * 16); }

template <int COUNT> struct __align__(2 * COUNT) Values {
    bf16 at[COUNT];
};
typedef Values<LANE_DIMS> Lane;

// One head's channels of a lane: first LANE_DIMS * lane.
struct Head {
    float at[LANE_DIMS];
};

__device__ __forceinline__ Lane load_lane(const bf16 *row) {
    return *(const Lane *)(row + threadIdx.x % 32 * LANE_DIMS);
}

#if FUSED
// RoPE's factors for a lane's channels, those that do not turn having 1 and 0.
struct Turn {
    float cosine[LANE_DIMS], sine[LANE_DIMS];
};

__device__ __forceinline__ Turn load_turn(const bf16 *cos, const bf16 *sin, int position) {
    Turn turn;
#pragma unroll
    for (int i = 0; i < LANE_DIMS; ++i) {
        int channel = threadIdx.x % 32 * LANE_DIMS + i;
        long long at = (long long)position * HALF + channel % HALF;
        bool turns = channel < 2 * HALF;
        turn.cosine[i] = turns ? widened(cos[at]) : 1.0f;
        turn.sine[i] = turns ? widened(sin[at]) : 0.0f;
        if (channel < HALF) turn.sine[i] = -turn.sine[i];
    }
    return turn;
}

// Norm and RoPE of one head; `scratch` holds HEAD_DIM values of this warp.
__device__ __forceinline__ Lane prepared(const Lane &raw, const Lane &weight, const Turn &turn, float eps,
                                         float *scratch) {
    int lane = threadIdx.x % 32;
    Head values;
    float square = 0.0f;
#pragma unroll
    for (int i = 0; i < LANE_DIMS; ++i) {
        values.at[i] = widened(raw.at[i]);
        square = fmaf(values.at[i], values.at[i], square);
    }
#pragma unroll
    for (int step = 16; step; step /= 2) square += __shfl_xor_sync(~0u, square, step);
    float factor = rsqrtf(square / HEAD_DIM + eps);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < LANE_DIMS; ++i) {
        values.at[i] = rounded(rounded(values.at[i] * factor) * widened(weight.at[i]));
        scratch[lane * LANE_DIMS + i] = values.at[i];
    }
    __syncwarp();
    Lane result;
#pragma unroll
    for (int i = 0; i < LANE_DIMS; ++i) {
        int channel = lane * LANE_DIMS + i;
        int partner = channel < HALF ? channel + HALF : channel < 2 * HALF ? channel - HALF : channel;
        float turned = fmaf(values.at[i], turn.cosine[i], scratch[partner] * turn.sine[i]);
        result.at[i] = packed(0.0f, turned) >> 16;
    }
    return result;
}
#endif

// Put a lane's channels into a row of a swizzled tile.
__device__ __forceinline__ void put_lane(unsigned char *tile, int row, const Lane &values) {
    int channel = threadIdx.x % 32 * LANE_DIMS;
    unsigned char *to = tile + channel / 64 * CHUNK_BYTES + unit(row, channel % 64 / 8) + channel % 8 * 2;
    *(Lane *)to = values;
}

struct Sums {
    float at[HEAD_DIM / 8][4];
    float best[2], total[2];
};

// Add sixteen keys to the running softmax; those from `seen` on do not exist.
__device__ __forceinline__ void attend_keys(Sums &sums, const u32 (&query)[HEAD_DIM / 16][4], u32 keys,
                                            float scale, int seen) {
    int lane = threadIdx.x % 32, matrix = lane / 8, r = lane % 8;
    float scores[2][4] = {};
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        u32 b[4];
        load_matrices(b, keys + step / 4 * CHUNK_BYTES +
                             unit(matrix / 2 * 8 + r, step % 4 * 2 + matrix % 2));
        multiply(scores[0], query[step], b[0], b[1]);
        multiply(scores[1], query[step], b[2], b[3]);
    }
    u32 weights[4] = {};
#pragma unroll
    for (int half = 0; half < ROWS / 8; ++half) {
        float s[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int key = i / 2 * 8 + lane % 4 * 2 + i % 2;
            s[i] = key < seen ? scores[i / 2][2 * half + i % 2] * scale : NOTHING;
        }
        float most = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        most = fmaxf(most, sums.best[half]);
        float shrink = power(sums.best[half] - most);
        sums.best[half] = most;
#pragma unroll
        for (int i = 0; i < 4; ++i) s[i] = power(s[i] - most);
        sums.total[half] = sums.total[half] * shrink + (s[0] + s[1]) + (s[2] + s[3]);
        weights[half] = packed(s[0], s[1]);
        weights[2 + half] = packed(s[2], s[3]);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) {
            sums.at[i][2 * half] *= shrink;
            sums.at[i][2 * half + 1] *= shrink;
        }
    }
    u32 values = keys + CHUNKS * CHUNK_BYTES;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 16; ++i) {
        u32 b[4];
        load_turned(b, values + i / 4 * CHUNK_BYTES +
                           unit(matrix % 2 * 8 + r, i % 4 * 2 + matrix / 2));
        multiply(sums.at[2 * i], weights, b[0], b[1]);
        multiply(sums.at[2 * i + 1], weights, b[2], b[3]);
    }
}

// Values that do not exist may be anything: a weight of zero does not hide what is not a number.
__device__ __forceinline__ void clear_values(unsigned char *stage, int seen) {
    unsigned char *values = stage + CHUNKS * CHUNK_BYTES;
    int count = (KEYS - seen) * CHUNKS * 8;
    for (int i = threadIdx.x % 32; i < count; i += 32)
        *(uint4 *)(values + i % CHUNKS * CHUNK_BYTES + (seen + i / CHUNKS / 8) * 128 + i / CHUNKS % 8 * 16) =
            make_uint4(0, 0, 0, 0);
    __syncwarp();
}

// Joins the parts of a row in order.
__device__ __forceinline__ void join_parts(const float *partial, const float *stats, bf16 *to,
                                           int first, int count, int num_heads, int head) {
    int lane = threadIdx.x % 32;
    for (int member = threadIdx.x / 32; member < GROUP; member += WARPS) {
        long long at = (long long)first * num_heads + head * GROUP + member;
        float best = NOTHING;
        for (int part = lane; part < count; part += 32)
            best = fmaxf(best, __ldcg(stats + 2 * (at + (long long)part * num_heads)));
#pragma unroll
        for (int step = 16; step; step /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, step));
        float total = 0.0f, sum[LANE_DIMS] = {};
        for (int done = 0; done < count; done += 32) {
            float2 its = make_float2(NOTHING, 0.0f);
            if (done + lane < count)
                its = __ldcg((const float2 *)(stats + 2 * (at + (long long)(done + lane) * num_heads)));
            float weight = power(its.x - best);
            int most = min(32, count - done);
#pragma unroll 8
            for (int i = 0; i < most; ++i) {
                float grow = __shfl_sync(~0u, weight, i);
                total = fmaf(__shfl_sync(~0u, its.y, i), grow, total);
                const float2 *values = (const float2 *)(partial + (at + (long long)(done + i) * num_heads) *
                                                                      HEAD_DIM) + lane;
#pragma unroll
                for (int k = 0; k < LANE_DIMS / 2; ++k) {
                    float2 value = __ldcg(values + 32 * k);
                    sum[2 * k] = fmaf(value.x, grow, sum[2 * k]);
                    sum[2 * k + 1] = fmaf(value.y, grow, sum[2 * k + 1]);
                }
            }
        }
        float inverse = 1.0f / total;
        u32 *out = (u32 *)(to + (head * GROUP + member) * HEAD_DIM) + lane;
#pragma unroll
        for (int k = 0; k < LANE_DIMS / 2; ++k)
            out[32 * k] = packed(sum[2 * k] * inverse, sum[2 * k + 1] * inverse);
    }
}

// `items` holds for each piece: row, first key, end of the keys, where the row's page table begins,
// the row's first piece, its pieces, and its position. `norm` holds a row a query head, then a row a
// key head. `partial` and `stats` have a row a piece and query head; `counters` [rows, key heads] are
// zero, and zero again at the end; `scale` includes log2(e). Rows without pieces are left alone; grid
// (most pieces, key heads).
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    decode_pages(const bf16 *qkv, const bf16 *norm, const bf16 *cos, const bf16 *sin, const void *map,
                 bf16 *pages, const int *items, const int *num_items, const int *page_table,
                 float *partial, float *stats, int *counters, bf16 *out, int stride, long long page_stride,
                 int num_kv_heads, int layer, float scale, float eps) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Small &small = *(Small *)(shared + AT_SMALL);
    int item = blockIdx.x, head = blockIdx.y;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int4 *described = (const int4 *)(items + item * ITEM_INTS);
    int4 one = described[0], two = described[1];
    if (item >= *num_items) return;
    int row = one.x, begin = one.y, end = one.z, first_item = two.x, count = two.y, position = two.z;
    const int *table = page_table + one.w;
    u64 *full = small.full[warp];
    unsigned char *ring = shared + warp * STAGES * STAGE_BYTES;
    if (lane < STAGES)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(full + lane)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
    __syncwarp();
#if OVERLAP
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#if !FUSED
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#endif
    // Blocks of sixteen keys: this warp has every fourth; lane i knows the page of the i-th of them.
    int num_blocks = (end - begin + KEYS - 1) / KEYS;
    int mine = (num_blocks - warp + WARPS - 1) / WARPS;
    auto page_of = [&](int first) {
        int at = begin + (warp + (first + lane) * WARPS) * KEYS;
        return at < end ? table[at / PAGE] : 0;
    };
    int known = page_of(0), unknown = page_of(32);
    auto start_copy = [&](int i) {
        if (i % 32 == 0 && i) {
            known = unknown;
            unknown = page_of(i + 32);
        }
        int page = __shfl_sync(~0u, known, i % 32);
        int at = begin + (warp + i * WARPS) * KEYS;
        int stage = i % STAGES;
        u64 *barrier = full + stage;
        if (lane == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                             shared_address(barrier)),
                         "r"(STAGE_BYTES)
                         : "memory");
        __syncwarp();
        if (lane < 2 * CHUNKS)
            copy_keys(shared_address(ring + stage * STAGE_BYTES + lane * CHUNK_BYTES), map, barrier,
                      lane % CHUNKS * 64, head, at % PAGE, 2 * layer + lane / CHUNKS, page);
    };
#pragma unroll
    for (int i = 0; i < STAGES; ++i)
        if (i < mine) start_copy(i);
    const bf16 *row_at = qkv + (long long)row * stride;
    int num_heads = num_kv_heads * GROUP;
    unsigned char *query_tile = shared + AT_QUERY;
    bool owns_new = false;
    Lane new_key, new_value;
#if FUSED
    owns_new = end == position + 1 && (num_blocks - 1) % WARPS == warp;
    float *scratch = (float *)(shared + AT_SCRATCH) + warp * HEAD_DIM;
    Turn turn = load_turn(cos, sin, position);
    constexpr int MOST = (GROUP + WARPS - 1) / WARPS;
    Lane weights[MOST];
#pragma unroll
    for (int i = 0; i < MOST; ++i)
        weights[i] = load_lane(norm + (head * GROUP + min(warp + i * WARPS, GROUP - 1)) * HEAD_DIM);
    Lane key_weight = load_lane(norm + (num_heads + head) * HEAD_DIM);
#if OVERLAP
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    Lane raw[MOST];
#pragma unroll
    for (int i = 0; i < MOST; ++i)
        raw[i] = load_lane(row_at + (head * GROUP + min(warp + i * WARPS, GROUP - 1)) * HEAD_DIM);
    if (owns_new) {
        const bf16 *key_at = row_at + (num_heads + head) * HEAD_DIM;
        new_key = load_lane(key_at);
        new_value = load_lane(key_at + num_kv_heads * HEAD_DIM);
    }
#pragma unroll
    for (int i = 0; i < MOST; ++i)
        if (warp + i * WARPS < GROUP)
            put_lane(query_tile, warp + i * WARPS, prepared(raw[i], weights[i], turn, eps, scratch));
    if (owns_new) {
        new_key = prepared(new_key, key_weight, turn, eps, scratch);
        long long token = (long long)table[position / PAGE] * page_stride +
                          ((long long)(position % PAGE) * num_kv_heads + head) * HEAD_DIM;
        *(Lane *)(pages + token + lane * LANE_DIMS) = new_key;
        *(Lane *)(pages + token + (long long)PAGE * num_kv_heads * HEAD_DIM + lane * LANE_DIMS) = new_value;
    }
#else
    for (int member = warp; member < GROUP; member += WARPS)
        put_lane(query_tile, member, load_lane(row_at + (head * GROUP + member) * HEAD_DIM));
#endif
    Lane zero = {};
    for (int member = GROUP + warp; member < 16; member += WARPS) put_lane(query_tile, member, zero);
    __syncthreads();
    u32 query[HEAD_DIM / 16][4];
    u32 query_at = shared_address(query_tile);
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step)
        load_matrices(query[step], query_at + step / 4 * CHUNK_BYTES +
                                       unit(lane / 8 % 2 * 8 + lane % 8, step % 4 * 2 + lane / 16));
    Sums sums;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) sums.at[i][k] = 0.0f;
    sums.best[0] = sums.best[1] = NOTHING;
    sums.total[0] = sums.total[1] = 0.0f;
    for (int i = 0; i < mine; ++i) {
        int stage = i % STAGES;
        unsigned char *keys = ring + stage * STAGE_BYTES;
        wait(full + stage, i / STAGES % 2);
        int seen = min(end - begin - (warp + i * WARPS) * KEYS, KEYS);
        if (seen < KEYS) clear_values(keys, seen);
        if (owns_new && i == mine - 1) {
            // What the copy brought of the new token is older than it.
            put_lane(keys, seen - 1, new_key);
            put_lane(keys + CHUNKS * CHUNK_BYTES, seen - 1, new_value);
            __syncwarp();
        }
        attend_keys(sums, query, shared_address(keys), scale, seen);
        __syncwarp();
        if (i + STAGES < mine) start_copy(i + STAGES);
    }
    // Join the warps.
    float *own = (float *)ring;
    __syncwarp();
#pragma unroll
    for (int half = 0; half < ROWS / 8; ++half) {
        int member = lane / 4 + half * 8;
        float total = sums.total[half];
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        if (lane % 4 == 0) {
            small.best[warp][member] = sums.best[half];
            small.total[warp][member] = total;
        }
        if (member < GROUP)
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; ++i)
                *(float2 *)(own + member * HEAD_DIM + i * 8 + lane % 4 * 2) =
                    make_float2(sums.at[i][2 * half], sums.at[i][2 * half + 1]);
    }
    __syncthreads();
    bf16 *to = out + (long long)row * num_heads * HEAD_DIM;
    for (int i = threadIdx.x; i < GROUP * HEAD_DIM / 2; i += WARPS * 32) {
        int member = i / (HEAD_DIM / 2), pair = i % (HEAD_DIM / 2);
        float best = NOTHING, total = 0.0f, low = 0.0f, high = 0.0f;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) best = fmaxf(best, small.best[other][member]);
#pragma unroll
        for (int other = 0; other < WARPS; ++other) {
            float grow = power(small.best[other][member] - best);
            float2 value = *(float2 *)(shared + other * STAGES * STAGE_BYTES +
                                       (member * HEAD_DIM + 2 * pair) * 4);
            total = fmaf(small.total[other][member], grow, total);
            low = fmaf(value.x, grow, low);
            high = fmaf(value.y, grow, high);
        }
        if (count == 1) {
            *(u32 *)(to + (head * GROUP + member) * HEAD_DIM + 2 * pair) = packed(low / total, high / total);
        } else {
            long long at = (long long)item * num_heads + head * GROUP + member;
            *(float2 *)(partial + at * HEAD_DIM + 2 * pair) = make_float2(low, high);
            if (pair == 0) *(float2 *)(stats + 2 * at) = make_float2(best, total);
        }
    }
    if (count == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int *counter = counters + row * num_kv_heads + head;
        small.is_last = atomicAdd(counter, 1) == count - 1;
        if (small.is_last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    if (small.is_last) join_parts(partial, stats, to, first_item, count, num_heads, head);
}
