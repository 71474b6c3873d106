// Runs clusters of CUDA blocks on the host, a fiber a thread: what layer.cu says in PTX, said in C++.
//
// Threads take turns in an order that is shuffled again and again, and give up their turn only where
// they wait. Copies to shared memory are done when they are waited for and not before; until then
// their place holds values that are not numbers.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <ucontext.h>
#include <utility>
#include <vector>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct float2 {
    float x, y;
};
struct uint4 {
    u32 x, y, z, w;
};

struct Meeting {
    int here = 0;
    u64 round = 0;
};

struct Warp : Meeting {
    u32 rows[2][32][4], weights[2][32][2];
    float values[2][32];
};

struct Cluster;

struct Block : Meeting {
    std::vector<char> memory;
    Warp warps[32];
    Cluster *cluster;
    int index;
};

struct Cluster : Meeting {
    std::vector<Block *> blocks;
};

using Copies = std::vector<std::pair<u32, const char *>>;

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    Block *block;
    int thread, turn = 0;
    u64 arrived_in = 0;
    bool ended = false;
    Copies open;
    std::deque<Copies> committed;
};

struct Index {
    int x;
};

static Fiber *self;
static ucontext_t scheduler;
static long progress;
static int num_blocks;
static const int num_threads = WARPS * 32;
static const u32 block_bits = 20;

#define threadIdx (Index{self->thread})
#define blockIdx (Index{self->block->index})
#define gridDim (Index{num_blocks})
#define shared (self->block->memory.data())
#define __expf expf
#define __frcp_rn(x) (1.0f / (x))
#define __fsqrt_rn(x) sqrtf(x)
#define __fdividef(a, b) ((a) / (b))

[[noreturn]] static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

static void yield_turn() { swapcontext(&self->context, &scheduler); }

static void meet(Meeting &meeting, int size) {
    const u64 round = meeting.round;
    if (++meeting.here == size) {
        meeting.here = 0;
        ++meeting.round;
        ++progress;
    } else {
        while (meeting.round == round) yield_turn();
    }
}

static Warp &own_warp() { return self->block->warps[self->thread / 32]; }
static void __syncthreads() { meet(*self->block, num_threads); }
static void __syncwarp() { meet(own_warp(), 32); }

static float2 make_float2(float x, float y) { return {x, y}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

static float __uint_as_float(u32 bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static u32 to_half(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7f800000) != 0x7f800000) bits += 0x7fff + (bits >> 16 & 1);
    return bits >> 16;
}

static float half_of(u32 two, int upper) {
    return __uint_as_float(upper ? two & 0xffff0000u : two << 16);
}

static u32 pack(float first, float second) { return to_half(first) | to_half(second) << 16; }

static u32 multiply(u32 a, u32 b) {
    return pack(half_of(a, 0) * half_of(b, 0), half_of(a, 1) * half_of(b, 1));
}

// Addresses in shared memory: which block of the cluster, and where in it.
static u32 address_in(u32 at, u32 rank) { return (at & ((1u << block_bits) - 1)) | (rank + 1) << block_bits; }

static u32 shared_address(const void *at) {
    return address_in((u32)((const char *)at - shared), self->block->index % SPLIT);
}

static char *place(u32 at) {
    const u32 rank = (at >> block_bits) - 1, offset = at & ((1u << block_bits) - 1);
    if (rank >= SPLIT) fail("no address in shared memory");
    Block &block = *self->block->cluster->blocks[rank];
    if (offset + 4 > block.memory.size()) fail("an address behind a block's shared memory");
    return block.memory.data() + offset;
}

template <int PENDING> static void wait_copies() {
    while (self->committed.size() > PENDING) {
        for (auto &copy : self->committed.front()) memcpy(place(copy.first), copy.second, 16);
        self->committed.pop_front();
    }
}

static void copy(u32 to, const char *from) {
    memset(place(to), 0xff, 16);
    self->open.push_back({to, from});
}

static void commit() {
    self->committed.push_back(self->open);
    self->open.clear();
}

template <class T> static T load(const void *at) {
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint4 load_shared(u32 at) { return load<uint4>(place(at)); }
static uint4 load_row(const void *at) { return load<uint4>(at); }
static u32 load_two(const void *at) { return load<u32>(at); }
static void send(u32 to, float2 value) { memcpy(place(to), &value, 8); }
static void send(u32 to, float value) { memcpy(place(to), &value, 4); }

static float __shfl_xor_sync(u32, float value, int mask) {
    const int lane = self->thread % 32, turn = self->turn ^= 1;
    own_warp().values[turn][lane] = value;
    __syncwarp();
    return own_warp().values[turn][lane ^ mask];
}

static void mma(float (&sums)[4], const u32 (&rows)[4], u32 first, u32 second) {
    const int lane = self->thread % 32, turn = self->turn ^= 1;
    Warp &warp = own_warp();
    memcpy(warp.rows[turn][lane], rows, sizeof rows);
    warp.weights[turn][lane][0] = first;
    warp.weights[turn][lane][1] = second;
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const u32 x = warp.rows[turn][row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            const u32 weight = warp.weights[turn][column * 4 + k % 8 / 2][k / 8];
            sums[i] += half_of(x, k % 2) * half_of(weight, k % 2);
        }
    }
}

static void arrive_cluster() {
    Cluster &cluster = *self->block->cluster;
    self->arrived_in = cluster.round;
    if (++cluster.here == num_threads * SPLIT) {
        cluster.here = 0;
        ++cluster.round;
        ++progress;
    }
}

static void wait_cluster() {
    while (self->block->cluster->round == self->arrived_in) yield_turn();
}

static void wait_grid(u32 *barrier) {
    __syncthreads();
    if (self->thread == 0) {
        volatile u32 *state = barrier;
        const u32 round = state[1];
        if (++state[0] == (u32)num_blocks) {
            state[0] = 0;
            state[1] = round + 1;
            ++progress;
        }
        while (state[1] == round) yield_turn();
    }
    __syncthreads();
}

#include "kernel.inc"

struct Arguments {
    void *pointers[10];
    u32 *barrier;
    int rows;
    float epsilons[2];
};

static Arguments *given;

static void run_thread() {
    auto &p = given->pointers;
    layer_products((char *)p[0], (u16 *)p[1], (u16 *)p[2], (u16 *)p[3], (char *)p[4], (char *)p[5],
                   (char *)p[6], (char *)p[7], (char *)p[8], (char *)p[9], given->barrier, given->rows,
                   given->epsilons[0], given->epsilons[1]);
    self->ended = true;
    ++progress;
    swapcontext(&self->context, &scheduler);
}

// Whether all threads came to their end.
extern "C" int run(Arguments *arguments, int num_clusters, int shared_bytes, u32 seed) {
    std::mt19937 chance(seed);
    given = arguments;
    num_blocks = num_clusters * SPLIT;
    std::vector<Cluster> clusters(num_clusters);
    std::vector<Block> blocks(num_blocks);
    for (int i = 0; i < num_blocks; ++i) {
        blocks[i].index = i;
        blocks[i].memory.assign(shared_bytes, (char)0xff);
        blocks[i].cluster = &clusters[i / SPLIT];
        clusters[i / SPLIT].blocks.push_back(&blocks[i]);
    }
    std::vector<Fiber> fibers(num_blocks * num_threads);
    std::vector<Fiber *> order;
    for (size_t i = 0; i < fibers.size(); ++i) {
        Fiber &fiber = fibers[i];
        fiber.block = &blocks[i / num_threads];
        fiber.thread = i % num_threads;
        fiber.stack.resize(48 << 10);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, run_thread, 0);
        order.push_back(&fiber);
    }
    while (!order.empty()) {
        const long before = progress;
        std::shuffle(order.begin(), order.end(), chance);
        for (Fiber *fiber : order) {
            self = fiber;
            swapcontext(&scheduler, &fiber->context);
        }
        order.erase(std::remove_if(order.begin(), order.end(), [](Fiber *f) { return f->ended; }), order.end());
        if (progress == before) return 0;
    }
    return 1;
}
