// Runs CUDA C++ kernels on the host, one block or cluster after the other: each thread is a fiber, and
// what the kernels do through PTX (barriers, copies, tensor cores) is done here as PTX describes it.
// Fibers run in random order, and a copy arrives at once or as late as whoever waits for it allows.

#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include <ucontext.h>

#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __ldcg(at) (*(at))
#define __expf(x) (expf(x))
#define threadIdx (thread_index())

typedef unsigned short Half;
struct int4 { int x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct Index { int x, y; };

static float2 make_float2(float x, float y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static float __fsqrt_rn(float x) { return sqrtf(x); }
static float __frcp_rn(float x) { return 1.0f / x; }
static float __fdividef(float x, float y) { return x / y; }

static float __int_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static float __uint_as_float(unsigned bits) { return __int_as_float(bits); }
static float of_half(unsigned bits) { return __int_as_float(bits << 16); }

static float of_float16(unsigned bits) {
    unsigned short low = bits;
    _Float16 value;
    memcpy(&value, &low, 2);
    return value;
}

static unsigned to_float16(float value) {
    _Float16 narrow = value > 65504 ? 65504 : value < -65504 ? -65504 : value;
    unsigned short bits;
    memcpy(&bits, &narrow, 2);
    return bits;
}

static unsigned to_half(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return std::isnan(value) ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

namespace simt {

const int WARP = 32, MOST_THREADS = 2048, MOST_BLOCKS = 8, MOST_NAMED = 16;
const size_t STACK = 256 << 10, SHARED = 256 << 10;
const long MOST_TURNS = 200'000'000;

struct Fiber {
    ucontext_t context;
    char *stack;
    int index;
    bool ended;
};

// A barrier of a number of threads.
struct Gate {
    int arrived = 0;
    long round = 0;
};

// An mbarrier, and bulk copies that have not arrived.
struct Barrier {
    int count, pending;
    long bytes, phase;
    std::vector<std::function<void()>> late;
};

// Copies a thread asked for: those not in a group yet, and groups not waited for.
struct Copies {
    std::vector<std::function<void()>> open;
    std::deque<std::vector<std::function<void()>>> groups;
};

alignas(1024) static unsigned char memory[MOST_BLOCKS * SHARED];
static std::vector<Fiber> fibers;
static Fiber *current;
static ucontext_t scheduler;
static std::function<void()> body;
static long turns;
static int num_threads;
static Gate cluster_gate, block_gates[MOST_BLOCKS], warp_gates[MOST_THREADS / WARP], named_gates[MOST_NAMED];
static unsigned char exchanged[MOST_THREADS / WARP][2][WARP][64];
static std::map<unsigned, Barrier> barriers;
static std::vector<Copies> copies;
static std::vector<long> awaited_rounds;
static int num_blocks;
static std::mt19937 chance;

static void yield() {
    if (++turns > MOST_TURNS) {
        fprintf(stderr, "threads wait for each other for ever\n");
        abort();
    }
    swapcontext(&current->context, &scheduler);
}

static void pass(Gate &gate, int count) {
    long round = gate.round;
    if (++gate.arrived == count) {
        gate.arrived = 0;
        ++gate.round;
        return;
    }
    while (gate.round == round) yield();
}

// How factors of products are read: bfloat16 unless a kernel's runner says otherwise.
static float (*widened)(unsigned) = of_half;

static int block() { return current->index / num_threads; }

static void copy(unsigned to, const void *from) {
    auto arrive = [=] { memcpy(memory + to, from, 16); };
    if (chance() % 2) arrive();
    else copies[current->index].open.push_back(arrive);
}

static void commit() {
    Copies &mine = copies[current->index];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}

static void wait_copies(size_t pending) {
    auto &groups = copies[current->index].groups;
    for (; groups.size() > pending; groups.pop_front())
        for (auto &arrive : groups.front()) arrive();
}

// Barriers of a cluster: arriving and waiting are two steps.
static void arrive_cluster() {
    awaited_rounds[current->index] = cluster_gate.round;
    if (++cluster_gate.arrived < num_blocks * num_threads) return;
    cluster_gate.arrived = 0;
    ++cluster_gate.round;
}

static void wait_cluster() {
    while (cluster_gate.round == awaited_rounds[current->index]) yield();
}

static unsigned offset_in(unsigned at, int rank) { return at % SHARED + rank * SHARED; }

static unsigned offset(const void *at) { return (unsigned)((const unsigned char *)at - memory); }
static unsigned swizzled(unsigned at) { return at ^ (at >> 7 & 7) << 4; }

// What every lane of the warp hands in.
template <class T> struct Lanes {
    unsigned char (*rows)[64];
    T operator[](int lane) const {
        T value;
        memcpy(&value, rows[lane], sizeof(T));
        return value;
    }
};

template <class T> Lanes<T> share(const T &mine) {
    static_assert(sizeof(T) <= 64, "larger than a place");
    int warp = current->index / WARP;
    Gate &gate = warp_gates[warp];
    unsigned char(*rows)[64] = exchanged[warp][gate.round % 2];
    memcpy(rows[current->index % WARP], &mine, sizeof(T));
    pass(gate, WARP);
    return {rows};
}

static void settle(Barrier &barrier) {
    if (barrier.pending || barrier.bytes) return;
    ++barrier.phase;
    barrier.pending = barrier.count;
}

static void init(unsigned at, int count) { barriers[at] = {count, count, 0, 0, {}}; }

static void arrive(unsigned at, int bytes = 0) {
    Barrier &barrier = barriers.at(at);
    barrier.bytes += bytes;
    --barrier.pending;
    settle(barrier);
}

static void wait(unsigned at, unsigned parity) {
    Barrier &barrier = barriers.at(at);
    while (true) {
        auto late = std::move(barrier.late);
        barrier.late.clear();
        for (auto &copy : late) copy();
        if ((barrier.phase & 1) != parity) return;
        yield();
    }
}

// A tensor: sizes and strides in values, innermost first; `box` rows of 64 values are copied.
struct Map {
    const Half *base;
    long sizes[5], strides[5];
    int box[5];
};

static void copy_box(unsigned to, const void *map, unsigned barrier, std::vector<int> at) {
    auto copy = [=] {
        const Map &tensor = *(const Map *)map;
        int rows = tensor.box[1] * tensor.box[2];
        for (int i = 0; i < rows * 64; ++i) {
            long place = 0;
            bool inside = true;
            for (size_t d = 0; d < at.size(); ++d) {
                int step = d == 0 ? i % 64 : d == 1 ? i / 64 % tensor.box[1] : d == 2 ? i / 64 / tensor.box[1] : 0;
                long index = at[d] + step;
                inside = inside && index >= 0 && index < tensor.sizes[d];
                place += index * tensor.strides[d];
            }
            Half value = inside ? tensor.base[place] : 0;
            memcpy(memory + swizzled(to + i * 2), &value, 2);
        }
        barriers.at(barrier).bytes -= rows * 128;
        settle(barriers.at(barrier));
    };
    if (chance() % 2) copy();
    else barriers.at(barrier).late.push_back(copy);
}

// ldmatrix .x4, with or without .trans.
static void load_matrices(unsigned (&to)[4], unsigned at, bool turned) {
    auto rows = share(at);
    int lane = current->index % WARP, major = lane / 4, minor = lane % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix) {
        Half values[2];
        for (int i = 0; i < 2; ++i) {
            int row = turned ? minor + i : major, column = turned ? major : minor + i;
            memcpy(&values[i], memory + rows[matrix * 8 + row] + column * 2, 2);
        }
        to[matrix] = values[0] | (unsigned)values[1] << 16;
    }
    pass(warp_gates[current->index / WARP], WARP);
}

struct Registers { unsigned at[6]; };

// stmatrix .x4.trans.
static void store_turned(unsigned at, unsigned a, unsigned b, unsigned c, unsigned d) {
    auto lanes = share(Registers{{at, a, b, c, d, 0}});
    int lane = current->index % WARP, matrix = lane / 8, column = lane % 8;
    for (int row = 0; row < 8; ++row) {
        unsigned pair = lanes[row * 4 + column / 2].at[1 + matrix];
        Half value = column % 2 ? pair >> 16 : pair & 0xFFFF;
        memcpy(memory + at + row * 2, &value, 2);
    }
    pass(warp_gates[current->index / WARP], WARP);
}

static float left(const Lanes<Registers> &lanes, int row, int k) {
    unsigned pair = lanes[row % 8 * 4 + k % 8 / 2].at[row / 8 + k / 8 * 2];
    return widened(k % 2 ? pair >> 16 : pair & 0xFFFF);
}

static float right(const Lanes<Registers> &lanes, int column, int k) {
    unsigned pair = lanes[column * 4 + k % 8 / 2].at[4 + k / 8];
    return widened(k % 2 ? pair >> 16 : pair & 0xFFFF);
}

static int row_of(int i) { return current->index % WARP / 4 + i / 2 % 2 * 8; }
static int column_of(int i) { return i / 4 * 8 + current->index % 4 * 2 + i % 2; }

// mma m16n8k16.
static void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    auto lanes = share(Registers{{a[0], a[1], a[2], a[3], b0, b1}});
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 16; ++k) d[i] += left(lanes, row_of(i), k) * right(lanes, column_of(i), k);
}

static float shared_half(unsigned at) {
    Half value;
    memcpy(&value, memory + swizzled(at), 2);
    return widened(value);
}

// Operands of wgmma with a 128-byte swizzle, by matrix descriptor.
static float by_rows(unsigned long long operand, int row, int k) {
    unsigned at = (operand & 0x3FFF) << 4, groups = (operand >> 32 & 0x3FFF) << 4;
    return shared_half(at + row / 8 * groups + row % 8 * 128 + k * 2);
}

static float by_columns(unsigned long long operand, int column, int k) {
    unsigned at = (operand & 0x3FFF) << 4, groups = (operand >> 32 & 0x3FFF) << 4;
    unsigned chunks = (operand >> 16 & 0x3FFF) << 4;
    return shared_half(at + column / 64 * chunks + k / 8 * groups + k % 8 * 128 + column % 64 * 2);
}

// wgmma m64k16 with both operands in shared memory.
template <int COUNT>
void multiply_shared(float (&d)[COUNT], unsigned long long a, unsigned long long b, int adds) {
    int first = current->index / WARP % 4 * 16;
    for (int i = 0; i < COUNT; ++i) {
        float sum = adds ? d[i] : 0;
        for (int k = 0; k < 16; ++k) sum += by_rows(a, first + row_of(i), k) * by_rows(b, column_of(i), k);
        d[i] = sum;
    }
    pass(warp_gates[current->index / WARP], WARP);
}

// wgmma m64k16 with the left operand in registers, and rows of the right one being columns of d.
static void multiply_rows(float *d, int count, const unsigned *a, unsigned long long b, int adds) {
    auto lanes = share(Registers{{a[0], a[1], a[2], a[3], 0, 0}});
    for (int i = 0; i < count; ++i) {
        float sum = adds ? d[i] : 0;
        for (int k = 0; k < 16; ++k) sum += left(lanes, row_of(i), k) * by_rows(b, column_of(i), k);
        d[i] = sum;
    }
    pass(warp_gates[current->index / WARP], WARP);
}

// wgmma m64k16 with the left operand in registers.
static void multiply_weights(float *d, int count, const unsigned *a, unsigned long long b) {
    auto lanes = share(Registers{{a[0], a[1], a[2], a[3], 0, 0}});
    for (int i = 0; i < count; ++i)
        for (int k = 0; k < 16; ++k) d[i] += left(lanes, row_of(i), k) * by_columns(b, column_of(i), k);
    pass(warp_gates[current->index / WARP], WARP);
}

static void enter() {
    body();
    current->ended = true;
    swapcontext(&current->context, &scheduler);
}

static void start(Fiber &fiber, int index) {
    if (!fiber.stack) fiber.stack = (char *)malloc(STACK);
    fiber.index = index;
    fiber.ended = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, enter, 0);
}

}  // namespace simt

static Index blockIdx, gridDim;
static unsigned char *shared;

namespace simt {

// Runs a block, or a cluster of blocks from `blockIdx` on. Shared memory starts out as what is not a
// number.
static void run_block(int threads, int blocks = 1) {
    num_threads = threads;
    num_blocks = blocks;
    turns = 0;
    barriers.clear();
    copies.assign(MOST_THREADS, Copies());
    awaited_rounds.assign(MOST_THREADS, 0);
    cluster_gate = Gate();
    std::fill(std::begin(block_gates), std::end(block_gates), Gate());
    std::fill(std::begin(warp_gates), std::end(warp_gates), Gate());
    std::fill(std::begin(named_gates), std::end(named_gates), Gate());
    memset(memory, 0x7F, SHARED * blocks);
    fibers.resize(MOST_THREADS);
    std::vector<int> order(threads * blocks);
    int first = blockIdx.x;
    for (int i = 0; i < threads * blocks; ++i) start(fibers[order[i] = i], i);
    for (int left = threads * blocks; left;) {
        if (chance() % 8 == 0) std::shuffle(order.begin(), order.end(), chance);
        for (int i : order) {
            if (fibers[i].ended) continue;
            current = &fibers[i];
            blockIdx.x = first + block();
            shared = memory + block() * SHARED;
            swapcontext(&scheduler, &current->context);
            left -= current->ended;
        }
    }
}

}  // namespace simt

struct ThreadIndex { int x; };
static ThreadIndex thread_index() { return {simt::current->index % simt::num_threads}; }

static void __threadfence() {}
static void __syncthreads() { simt::pass(simt::block_gates[simt::block()], simt::num_threads); }
static void __syncwarp() { simt::pass(simt::warp_gates[simt::current->index / simt::WARP], simt::WARP); }
template <class T> T __shfl_xor_sync(unsigned, T value, int bits) {
    return simt::share(value)[simt::current->index % simt::WARP ^ bits];
}
template <class T> T __shfl_sync(unsigned, T value, int lane) { return simt::share(value)[lane & 31]; }
template <class T> T atomicAdd(T *at, T value) {
    T before = *at;
    *at += value;
    return before;
}
