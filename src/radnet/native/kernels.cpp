// Radial rescaling, and chains of layers with it, on raw memory: what `radnet.native` calls where no tracer looks on.
//
// Every function of this file says by what it returns how its norms were: 0 if one of them was extraordinary (its square
// over- or underflows, or it is not a number), and then nothing that was written counts; 1 if all were ordinary; 2 if
// all were but for those of vectors that are exactly 0. What to do with the others the caller knows (rescaling.py).
//
// The mathematics is at the top of rescaling.py. With g(r) = h(r - t) and s = g/r,
//     y = s v,      grad_v = s gy + (g' - s) <gy, v>/r^2 v,      grad_t = - sum of g' <gy, v>/r.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(RADNET_ONE_CPU)
#define FOR_EACH_CPU __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOR_EACH_CPU
#endif
#define INLINE inline __attribute__((always_inline))
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using index = std::int64_t;

constexpr int ABI = 1;  // what radnet/native/library.py expects
enum Norms : int { EXTRAORDINARY = 0, ORDINARY = 1, SOME_ZERO = 2 };
enum Kind : int { NOTHING = -1, IDENTITY = 0, STEP_RELU = 1, SQUASH = 2, SHIFTED_RELU = 3, SIGMOID = 4 };

// --- profiles

template <class T>
struct Range;  // of ordinary norms, as rescaling.ordinary_range says
template <>
struct Range<float> {
    static constexpr float low = 0x1p-48f, high = 0x1p48f;
};
template <>
struct Range<double> {
    static constexpr double low = 0x1p-384, high = 0x1p384;
};

template <class T>
struct Profile {
    int kind;
    T b, t;  // of the shifted ReLU; the shift

    INLINE T h(T r) const {
        const T x = r - t;
        switch (kind) {
            case STEP_RELU: return x >= 1 ? x : T(0);
            case SQUASH: {
                const T largest = std::sqrt(std::numeric_limits<T>::max()) / 2;
                const T clamped = std::min(std::max(x, -largest), largest), q = clamped * clamped;
                return q / (q + 1);
            }
            case SHIFTED_RELU: return x >= b ? x - b : T(0);
            case SIGMOID: return T(1) / (T(1) + std::exp(-x));
            default: return x;
        }
    }

    INLINE T slope(T r) const {
        const T x = r - t;
        switch (kind) {
            case STEP_RELU: return x >= 1 ? T(1) : T(0);
            case SQUASH: {
                const T q = x * x + 1;
                return 2 * (x / q) / q;
            }
            case SHIFTED_RELU: return x >= b ? T(1) : T(0);
            case SIGMOID: return T(1) / (T(1) + std::exp(-x)) * (T(1) / (T(1) + std::exp(x)));
            default: return T(1);
        }
    }

    // the gradient at v = 0: g'(0) if g(0) = 0, else 0
    T slope_at_zero() const {
        const T d = slope(T(0));
        return h(T(0)) == 0 && std::isfinite(d) ? d : T(0);
    }

    bool does_nothing() const { return kind == NOTHING; }
};

template <class T>
INLINE bool ordinary(T r) {
    return r >= Range<T>::low && r <= Range<T>::high;
}

// --- threads: those of torch, whose OpenMP is in the process already. Others would fight with them for the cores, since
// they spin for a while when their work is done. They do not survive a fork: in a child threads are made for the call.

using Pool = void (*)(void (*)(void*), void*, unsigned, unsigned);

std::atomic<bool> forked{false};

Pool torchs_pool() {
    static const Pool found = [] {
        pthread_atfork(nullptr, nullptr, [] { forked = true; });
        return reinterpret_cast<Pool>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    }();
    return forked ? nullptr : found;
}

// work(k, begin, end) for each of `threads` parts of the items; which thread takes which part is left open
template <class Work>
void in_parallel(index items, int threads, Work work) {
    const int many = int(std::max<index>(1, std::min<index>(threads, items)));
    if (many == 1) return work(0, index(0), items);
    struct Shared {
        Work& work;
        index items;
        int many;
        std::atomic<int> next{0};
    } shared{work, items, many};
    const auto take = [](void* data) {
        Shared& s = *static_cast<Shared*>(data);
        for (int k = s.next++; k < s.many; k = s.next++) s.work(k, s.items * k / s.many, s.items * (k + 1) / s.many);
    };
    if (const Pool pool = torchs_pool()) return pool(take, &shared, unsigned(many), 0);
    std::vector<std::thread> others;
    try {
        for (int k = 1; k < many; ++k) others.emplace_back(take, &shared);
    } catch (...) {  // no more threads to be had: those that are there do it
    }
    take(&shared);
    for (auto& other : others) other.join();
}

struct Seen {  // how the norms were, over all threads
    std::atomic<int> worst{ORDINARY};
    void note(int found) {
        if (found == EXTRAORDINARY) worst = EXTRAORDINARY;
        int expected = ORDINARY;
        if (found == SOME_ZERO) worst.compare_exchange_strong(expected, SOME_ZERO);
    }
};

// --- rows: a vector is contiguous

constexpr index LANES = 16, STRETCH = 1024;  // numbers added up side by side; and in a row before they are added in double

template <class T>
INLINE double dot(const T* __restrict a, const T* __restrict b, index n) {
    double total = 0;
    for (index start = 0; start < n; start += STRETCH) {
        const index end = std::min(n, start + STRETCH);
        T lanes[LANES] = {};
        index i = start;
        for (; i + LANES <= end; i += LANES)
            for (index l = 0; l < LANES; ++l) lanes[l] += a[i + l] * b[i + l];
        for (index l = 0; i < end; ++i, ++l) lanes[l] += a[i] * b[i];
        for (index width = LANES / 2; width; width /= 2)
            for (index l = 0; l < width; ++l) lanes[l] += lanes[l + width];
        total += lanes[0];
    }
    return total;
}

template <class T>
INLINE bool all_zero(const T* v, index n, index stride) {
    for (index i = 0; i < n; ++i)
        if (v[i * stride] != 0) return false;
    return true;
}

template <class T>
INLINE int rows_forward(const T* v, T* y, T* r, index begin, index end, index n, Profile<T> profile) {
    int found = ORDINARY;
    for (index row = begin; row < end; ++row) {
        const T* from = v + row * n;
        T* to = y + row * n;  // may be the same place
        const T norm = T(std::sqrt(dot(from, from, n)));
        T s = 0;
        if (ordinary(norm)) {
            s = profile.h(norm) / norm;
        } else if (norm == 0 && all_zero(from, n, 1)) {
            found = SOME_ZERO;
        } else {
            return EXTRAORDINARY;
        }
        if (r) r[row] = norm;
        for (index i = 0; i < n; ++i) to[i] = s * from[i];
    }
    return found;
}

template <class T>
INLINE void rows_backward(
    const T* v, const T* r, const T* gy, T* gv, T* gt, index begin, index end, index n, Profile<T> profile) {
    const T slope_at_zero = profile.slope_at_zero();
    for (index row = begin; row < end; ++row) {
        const T* __restrict a = v + row * n;
        const T* __restrict g = gy + row * n;
        T* __restrict to = gv + row * n;
        const T norm = r[row], slope = norm == 0 ? slope_at_zero : profile.slope(norm);
        T s = slope, along = 0, c = 0;  // at the origin, and for numbers, the gradient is g' times the one that comes
        if (norm != 0) {
            along = T(dot(a, g, n)) / norm;
            if (n > 1) {
                s = profile.h(norm) / norm;
                c = (slope - s) * along / norm;
            }
        }
        if (gt) gt[row] = slope * along;
        for (index i = 0; i < n; ++i) to[i] = s * g[i] + c * a[i];
    }
}

// --- columns: vectors side by side, so entry i of the next one is beside entry i of this one

constexpr index WIDTH = 512;  // columns that are worked on together

template <class T>
INLINE int columns_forward(const T* v, T* y, T* r, index count, index n, index inner, Profile<T> profile) {
    T squares[WIDTH] = {}, s[WIDTH];
    for (index i = 0; i < n; ++i)
        for (index j = 0; j < count; ++j) squares[j] += v[i * inner + j] * v[i * inner + j];
    int found = ORDINARY;
    for (index j = 0; j < count; ++j) {
        const T norm = std::sqrt(squares[j]);
        s[j] = 0;
        if (ordinary(norm)) {
            s[j] = profile.h(norm) / norm;
        } else if (norm == 0 && all_zero(v + j, n, inner)) {
            found = SOME_ZERO;
        } else {
            return EXTRAORDINARY;
        }
        if (r) r[j] = norm;
    }
    for (index i = 0; i < n; ++i) {
        const T* __restrict from = v + i * inner;
        T* __restrict to = y + i * inner;
        for (index j = 0; j < count; ++j) to[j] = s[j] * from[j];
    }
    return found;
}

template <class T>
INLINE void columns_backward(
    const T* v, const T* r, const T* gy, T* gv, T* gt, index count, index n, index inner, Profile<T> profile) {
    T along[WIDTH] = {}, s[WIDTH], c[WIDTH];
    for (index i = 0; i < n; ++i)
        for (index j = 0; j < count; ++j) along[j] += v[i * inner + j] * gy[i * inner + j];
    const T slope_at_zero = profile.slope_at_zero();
    for (index j = 0; j < count; ++j) {
        const T norm = r[j], slope = norm == 0 ? slope_at_zero : profile.slope(norm);
        along[j] = norm == 0 ? T(0) : along[j] / norm;
        s[j] = norm == 0 || n == 1 ? slope : profile.h(norm) / norm;
        c[j] = norm == 0 || n == 1 ? T(0) : (slope - s[j]) * along[j] / norm;
        if (gt) gt[j] = slope * along[j];
    }
    for (index i = 0; i < n; ++i) {
        const T* __restrict a = v + i * inner;
        const T* __restrict g = gy + i * inner;
        T* __restrict to = gv + i * inner;
        for (index j = 0; j < count; ++j) to[j] = s[j] * g[j] + c[j] * a[j];
    }
}

// --- chains: a tile of samples goes through all layers, one sample to each lane, and stays in the cache

template <class T>
struct Layer {
    index in, out;
    const T* W;  // out x in
    const T* b;  // out, or null
    Profile<T> profile;
};

template <class T>
constexpr index TILE = 64 / sizeof(T);  // samples in a tile: as many as the widest registers hold

template <class T>
using Lanes [[gnu::vector_size(64), gnu::may_alias]] = T;

// memory for lanes, which have to be aligned; zeros at first, and null if there is none
template <class T>
class Memory {
  public:
    explicit Memory(index lanes)
        : data_(static_cast<T*>(::operator new(
              std::size_t(lanes) * sizeof(Lanes<T>), std::align_val_t(sizeof(Lanes<T>)), std::nothrow))) {
        if (data_) std::fill(data_, data_ + lanes * TILE<T>, T(0));
    }
    ~Memory() { ::operator delete(data_, std::align_val_t(sizeof(Lanes<T>))); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Lanes<T>* get() const { return reinterpret_cast<Lanes<T>*>(data_); }

  private:
    T* data_;
};

template <class T>
INLINE Lanes<T> all_lanes(T x) {
    return Lanes<T>{} + x;
}

// out[o] = b[o] + sum over i of W[o, i] a[i], for all lanes; W[o, i] is at W[o * by_out + i * by_in]
template <class T>
INLINE void product(
    Lanes<T>* __restrict out, const Lanes<T>* __restrict a, const T* __restrict W, const T* __restrict b, index outs,
    index ins, index by_out, index by_in) {
    index o = 0;
    for (; o + 4 <= outs; o += 4) {
        Lanes<T> s0 = all_lanes<T>(b ? b[o] : 0), s1 = all_lanes<T>(b ? b[o + 1] : 0);
        Lanes<T> s2 = all_lanes<T>(b ? b[o + 2] : 0), s3 = all_lanes<T>(b ? b[o + 3] : 0);
        for (index i = 0; i < ins; ++i) {
            const T* w = W + o * by_out + i * by_in;
            s0 += a[i] * w[0];
            s1 += a[i] * w[by_out];
            s2 += a[i] * w[2 * by_out];
            s3 += a[i] * w[3 * by_out];
        }
        out[o] = s0, out[o + 1] = s1, out[o + 2] = s2, out[o + 3] = s3;
    }
    for (; o < outs; ++o) {
        Lanes<T> s = all_lanes<T>(b ? b[o] : 0);
        for (index i = 0; i < ins; ++i) s += a[i] * W[o * by_out + i * by_in];
        out[o] = s;
    }
}

// the norms of a tile and their factors; the values become s v
template <class T>
INLINE int tile_rescaled(Lanes<T>* v, index n, Profile<T> profile, T* r, T* s) {
    Lanes<T> squares{};
    for (index i = 0; i < n; ++i) squares += v[i] * v[i];
    int found = ORDINARY;
    for (index l = 0; l < TILE<T>; ++l) {
        r[l] = std::sqrt(squares[l]);
        s[l] = 0;
        if (ordinary(r[l])) {
            s[l] = profile.h(r[l]) / r[l];
        } else if (r[l] == 0 && all_zero(reinterpret_cast<const T*>(v) + l, n, TILE<T>)) {
            found = SOME_ZERO;
        } else {
            return EXTRAORDINARY;
        }
    }
    return found;
}

template <class T>
INLINE void scale_tile(Lanes<T>* to, const Lanes<T>* v, index n, const T* s) {
    Lanes<T> factor;
    for (index l = 0; l < TILE<T>; ++l) factor[l] = s[l];
    for (index i = 0; i < n; ++i) to[i] = factor * v[i];
}

// rows of a matrix to lanes and back; the last tile repeats its last row, which nobody reads
template <class T>
INLINE void to_lanes(Lanes<T>* to, const T* from, index n, index rows) {
    T* out = reinterpret_cast<T*>(to);
    for (index l = 0; l < TILE<T>; ++l) {
        const T* row = from + std::min(l, rows - 1) * n;
        for (index i = 0; i < n; ++i) out[i * TILE<T> + l] = row[i];
    }
}

template <class T>
INLINE void from_lanes(T* to, const Lanes<T>* from, index n, index rows) {
    const T* in = reinterpret_cast<const T*>(from);
    for (index l = 0; l < rows; ++l)
        for (index i = 0; i < n; ++i) to[l * n + i] = in[i * TILE<T> + l];
}

template <class T>
INLINE int chain_tile(const std::vector<Layer<T>>& layers, const T* x, T* y, index rows, Lanes<T>* a, Lanes<T>* z) {
    int found = ORDINARY;
    T r[TILE<T>], s[TILE<T>];
    to_lanes<T>(a, x, layers[0].in, rows);
    for (const auto& layer : layers) {
        product<T>(z, a, layer.W, layer.b, layer.out, layer.in, layer.in, 1);
        if (!layer.profile.does_nothing()) {
            const int norms = tile_rescaled<T>(z, layer.out, layer.profile, r, s);
            if (norms == EXTRAORDINARY) return EXTRAORDINARY;
            if (norms == SOME_ZERO) found = SOME_ZERO;
            scale_tile<T>(z, z, layer.out, s);
        }
        std::swap(a, z);
    }
    from_lanes<T>(y, a, layers.back().out, rows);
    return found;
}

// one sample: every product is a row of W with a vector
template <class T>
INLINE int chain_row(const std::vector<Layer<T>>& layers, const T* x, T* y, T* a, T* z) {
    int found = ORDINARY;
    const T* from = x;
    for (const auto& layer : layers) {
        T* to = &layer == &layers.back() ? y : (from == a ? z : a);
        for (index o = 0; o < layer.out; ++o)
            to[o] = T(dot(layer.W + o * layer.in, from, layer.in)) + (layer.b ? layer.b[o] : T(0));
        if (!layer.profile.does_nothing()) {
            const int norms = rows_forward<T>(to, to, nullptr, 0, 1, layer.out, layer.profile);
            if (norms == EXTRAORDINARY) return EXTRAORDINARY;
            if (norms == SOME_ZERO) found = SOME_ZERO;
        }
        from = to;
    }
    return found;
}

template <class T>
index widest(const std::vector<Layer<T>>& layers) {
    index most = layers[0].in;
    for (const auto& layer : layers) most = std::max(most, layer.out);
    return most;
}

constexpr index FEW = 5;  // samples that go one by one

template <class T>
INLINE int chain_range(const std::vector<Layer<T>>& layers, const T* x, T* y, index begin, index end) {
    const index in = layers[0].in, out = layers.back().out, most = widest(layers);
    const Memory<T> memory(2 * most);
    if (!memory.get()) return EXTRAORDINARY;
    int found = ORDINARY;
    while (begin < end) {
        const index rows = std::min(end - begin, TILE<T>);
        int norms = ORDINARY;
        if (rows < FEW) {
            T* a = reinterpret_cast<T*>(memory.get());
            norms = chain_row(layers, x + begin * in, y + begin * out, a, a + most);
            begin += 1;
        } else {
            norms = chain_tile<T>(layers, x + begin * in, y + begin * out, rows, memory.get(), memory.get() + most);
            begin += rows;
        }
        if (norms == EXTRAORDINARY) return EXTRAORDINARY;
        if (norms == SOME_ZERO) found = SOME_ZERO;
    }
    return found;
}

// --- chains backward: the tile goes forward once more, keeping what the gradient needs, and back

template <class T>
struct Trail {  // what one thread needs
    std::vector<index> z, a;  // where layer k keeps its values before and after rescaling, in lanes
    std::vector<index> w;     // where the gradient of W begins; rows are as long as `padded` says
    index lanes = 0, gradients = 0, most = 0;

    static index padded(index n) { return (n + TILE<T> - 1) / TILE<T> * TILE<T>; }

    explicit Trail(const std::vector<Layer<T>>& layers) : most(padded(widest(layers))) {
        a.push_back(0);
        lanes = layers[0].in;
        for (const auto& layer : layers) {
            z.push_back(lanes);
            a.push_back(lanes + layer.out);
            lanes += 2 * layer.out;
            w.push_back(gradients);
            gradients += layer.out * (padded(layer.in) + 1) + 1;  // W, b and t
        }
    }
};

template <class T>
INLINE int chain_back_range(
    const std::vector<Layer<T>>& layers, const Trail<T>& trail, const T* x, const T* gy, T* gx, index begin, index end,
    Lanes<T>* kept, Lanes<T>* work, T* gradients) {
    const index L = index(layers.size()), in = layers[0].in, out = layers.back().out;
    std::vector<T> norms(2 * L * TILE<T>);
    Lanes<T>*g = work, *next = work + trail.most;
    T* transposed = reinterpret_cast<T*>(work + 2 * trail.most);  // TILE rows, padded
    int found = ORDINARY;
    for (; begin < end; begin += TILE<T>) {
        const index rows = std::min(end - begin, TILE<T>);
        to_lanes<T>(kept, x + begin * in, in, rows);
        for (index k = 0; k < L; ++k) {
            const auto& layer = layers[k];
            Lanes<T>* z = kept + trail.z[k];
            T *r = &norms[2 * k * TILE<T>], *s = r + TILE<T>;
            product<T>(z, kept + trail.a[k], layer.W, layer.b, layer.out, layer.in, layer.in, 1);
            if (layer.profile.does_nothing()) {
                std::fill(s, s + TILE<T>, T(1));
            } else {
                const int seen = tile_rescaled<T>(z, layer.out, layer.profile, r, s);
                if (seen == EXTRAORDINARY) return EXTRAORDINARY;
                if (seen == SOME_ZERO) found = SOME_ZERO;
            }
            scale_tile<T>(kept + trail.a[k + 1], z, layer.out, s);
        }
        to_lanes<T>(g, gy + begin * out, out, rows);
        if (rows < TILE<T>)  // the rows that were repeated count for nothing
            for (index o = 0; o < out; ++o)
                for (index l = rows; l < TILE<T>; ++l) g[o][l] = 0;
        for (index k = L - 1; k >= 0; --k) {
            const auto& layer = layers[k];
            const Lanes<T>* z = kept + trail.z[k];
            const index stride = Trail<T>::padded(layer.in);
            T* gW = gradients + trail.w[k];
            T *gb = gW + layer.out * stride, *gt = gb + layer.out;
            if (!layer.profile.does_nothing()) {  // through the rescaling
                const T *r = &norms[2 * k * TILE<T>], *s = r + TILE<T>;
                Lanes<T> along{}, first, second;
                for (index o = 0; o < layer.out; ++o) along += g[o] * z[o];
                const T at_zero = layer.profile.slope_at_zero();
                for (index l = 0; l < TILE<T>; ++l) {
                    const T slope = r[l] == 0 ? at_zero : layer.profile.slope(r[l]);
                    const T d = r[l] == 0 ? T(0) : along[l] / r[l];
                    const bool alone = r[l] == 0 || layer.out == 1;
                    first[l] = alone ? slope : s[l];
                    second[l] = alone ? T(0) : (slope - s[l]) * d / r[l];
                    *gt -= slope * d;
                }
                for (index o = 0; o < layer.out; ++o) g[o] = first * g[o] + second * z[o];
            }
            const T* a = reinterpret_cast<const T*>(kept + trail.a[k]);
            for (index l = 0; l < TILE<T>; ++l)
                for (index i = 0; i < layer.in; ++i) transposed[l * stride + i] = a[i * TILE<T> + l];
            for (index o = 0; o < layer.out; ++o) {
                T sum = 0;
                for (index l = 0; l < TILE<T>; ++l) sum += g[o][l];
                gb[o] += sum;
                for (index i = 0; i < layer.in; i += TILE<T>) {
                    T* to = gW + o * stride + i;
                    T lanes[TILE<T>];
                    for (index j = 0; j < TILE<T>; ++j) lanes[j] = to[j];
                    for (index l = 0; l < TILE<T>; ++l) {
                        const T c = g[o][l];
                        const T* from = transposed + l * stride + i;
                        for (index j = 0; j < TILE<T>; ++j) lanes[j] += c * from[j];
                    }
                    for (index j = 0; j < TILE<T>; ++j) to[j] = lanes[j];
                }
            }
            if (k > 0 || gx) {
                product<T>(next, g, layer.W, nullptr, layer.in, layer.out, 1, layer.in);
                std::swap(g, next);
            }
        }
        if (gx) from_lanes<T>(gx + begin * in, g, in, rows);
    }
    return found;
}

// --- for each instruction set

#define RANGES(T, NAME)                                                                                              \
    FOR_EACH_CPU int rows_forward_##NAME(                                                                            \
        const T* v, T* y, T* r, index begin, index end, index n, const Profile<T>& profile) {                        \
        return rows_forward<T>(v, y, r, begin, end, n, profile);                                                     \
    }                                                                                                                \
    FOR_EACH_CPU int columns_forward_##NAME(                                                                         \
        const T* v, T* y, T* r, index count, index n, index inner, const Profile<T>& profile) {                      \
        return columns_forward<T>(v, y, r, count, n, inner, profile);                                                \
    }                                                                                                                \
    FOR_EACH_CPU void rows_backward_##NAME(                                                                          \
        const T* v, const T* r, const T* gy, T* gv, T* gt, index begin, index end, index n,                          \
        const Profile<T>& profile) {                                                                                 \
        rows_backward<T>(v, r, gy, gv, gt, begin, end, n, profile);                                                  \
    }                                                                                                                \
    FOR_EACH_CPU void columns_backward_##NAME(                                                                       \
        const T* v, const T* r, const T* gy, T* gv, T* gt, index count, index n, index inner,                        \
        const Profile<T>& profile) {                                                                                 \
        columns_backward<T>(v, r, gy, gv, gt, count, n, inner, profile);                                             \
    }                                                                                                                \
    FOR_EACH_CPU int chain_range_##NAME(                                                                             \
        const std::vector<Layer<T>>& layers, const T* x, T* y, index begin, index end) {                             \
        return chain_range<T>(layers, x, y, begin, end);                                                             \
    }                                                                                                                \
    FOR_EACH_CPU int chain_back_range_##NAME(                                                                        \
        const std::vector<Layer<T>>& layers, const Trail<T>& trail, const T* x, const T* gy, T* gx, index begin,     \
        index end, Lanes<T>* kept, Lanes<T>* work, T* gradients) {                                                   \
        return chain_back_range<T>(layers, trail, x, gy, gx, begin, end, kept, work, gradients);                     \
    }

RANGES(float, float)
RANGES(double, double)

#define OVERLOAD(RESULT, NAME)                                                       \
    template <class... Arguments>                                                    \
    RESULT NAME(float*, Arguments&&... arguments) {                                  \
        return NAME##_float(std::forward<Arguments>(arguments)...);                  \
    }                                                                                \
    template <class... Arguments>                                                    \
    RESULT NAME(double*, Arguments&&... arguments) {                                 \
        return NAME##_double(std::forward<Arguments>(arguments)...);                 \
    }

OVERLOAD(int, rows_forward)
OVERLOAD(int, columns_forward)
OVERLOAD(void, rows_backward)
OVERLOAD(void, columns_backward)
OVERLOAD(int, chain_range)
OVERLOAD(int, chain_back_range)

// --- what is called from outside: v is (outer, n, inner) and contiguous

template <class T>
int forward(
    const T* v, T* y, T* r, index outer, index n, index inner, const Profile<T>& profile, int threads) {
    constexpr T* TYPE = nullptr;
    Seen seen;
    if (inner == 1) {
        in_parallel(outer, threads, [&](int, index begin, index end) {
            seen.note(rows_forward(TYPE, v, y, r, begin, end, n, profile));
        });
        return seen.worst;
    }
    const index tiles = (inner + WIDTH - 1) / WIDTH;
    in_parallel(outer * tiles, threads, [&](int, index begin, index end) {
        for (index k = begin; k < end && seen.worst != EXTRAORDINARY; ++k) {
            const index o = k / tiles, j = k % tiles * WIDTH, at = o * n * inner + j;
            T* norms = r ? r + o * inner + j : nullptr;
            seen.note(columns_forward(TYPE, v + at, y + at, norms, std::min(WIDTH, inner - j), n, inner, profile));
        }
    });
    return seen.worst;
}

template <class T>
void backward(
    const T* v, const T* r, const T* gy, T* gv, T* gt, index outer, index n, index inner, const Profile<T>& profile,
    int threads) {
    constexpr T* TYPE = nullptr;
    if (inner == 1) {
        in_parallel(outer, threads, [&](int, index begin, index end) {
            rows_backward(TYPE, v, r, gy, gv, gt, begin, end, n, profile);
        });
        return;
    }
    const index tiles = (inner + WIDTH - 1) / WIDTH;
    in_parallel(outer * tiles, threads, [&](int, index begin, index end) {
        for (index k = begin; k < end; ++k) {
            const index o = k / tiles, j = k % tiles * WIDTH, at = o * n * inner + j, norm = o * inner + j;
            columns_backward(
                TYPE, v + at, r + norm, gy + at, gv + at, gt ? gt + norm : nullptr, std::min(WIDTH, inner - j), n, inner,
                profile);
        }
    });
}

// a chain as it comes from outside; for each layer: in, out, where W is, where b is (or 0), the kind of the profile;
// and the profile's b and t
template <class T>
std::vector<Layer<T>> layers_of(int L, const index* given, const double* numbers) {
    std::vector<Layer<T>> layers;
    for (int k = 0; k < L; ++k, given += 5, numbers += 2)
        layers.push_back(
            {given[0], given[1], reinterpret_cast<const T*>(given[2]), reinterpret_cast<const T*>(given[3]),
             {int(given[4]), T(numbers[0]), T(numbers[1])}});
    return layers;
}

template <class T>
int chain(const std::vector<Layer<T>>& layers, const T* x, T* y, index rows, int threads) {
    constexpr T* TYPE = nullptr;
    Seen seen;
    const index tiles = (rows + TILE<T> - 1) / TILE<T>;
    in_parallel(tiles, threads, [&](int, index begin, index end) {
        seen.note(chain_range(TYPE, layers, x, y, begin * TILE<T>, std::min(rows, end * TILE<T>)));
    });
    return seen.worst;
}

// gradients of all layers, one after the other: W (out x in), b, t
template <class T>
int chain_back(
    const std::vector<Layer<T>>& layers, const T* x, const T* gy, T* gx, T* gradients, index rows, int threads) {
    constexpr T* TYPE = nullptr;
    const Trail<T> trail(layers);
    const index tiles = (rows + TILE<T> - 1) / TILE<T>;
    threads = int(std::max<index>(1, std::min<index>(threads, tiles)));
    const index lanes = trail.lanes + 3 * trail.most;
    const Memory<T> memory(threads * lanes);
    std::unique_ptr<T[]> sums(new (std::nothrow) T[threads * trail.gradients]());
    if (!memory.get() || !sums) return EXTRAORDINARY;
    Seen seen;
    in_parallel(tiles, threads, [&](int k, index begin, index end) {
        Lanes<T>* kept = memory.get() + k * lanes;
        seen.note(chain_back_range(
            TYPE, layers, trail, x, gy, gx, begin * TILE<T>, std::min(rows, end * TILE<T>), kept, kept + trail.lanes,
            sums.get() + k * trail.gradients));
    });
    for (int k = 1; k < threads; ++k)
        for (index i = 0; i < trail.gradients; ++i) sums[i] += sums[k * trail.gradients + i];
    T* to = gradients;
    for (std::size_t k = 0; k < layers.size(); ++k) {
        const index in = layers[k].in, out = layers[k].out, stride = Trail<T>::padded(in);
        const T* from = sums.get() + trail.w[k];
        for (index o = 0; o < out; ++o, to += in) std::copy(from + o * stride, from + o * stride + in, to);
        to = std::copy(from + out * stride, from + out * stride + out + 1, to);
    }
    return seen.worst;
}

}  // namespace

EXPORT int radnet_abi() { return ABI; }

#define ENTRIES(T, NAME)                                                                                             \
    EXPORT int radnet_forward_##NAME(                                                                                \
        const T* v, T* y, T* r, index outer, index n, index inner, int kind, double b, double t, int threads) {      \
        return forward<T>(v, y, r, outer, n, inner, {kind, T(b), T(t)}, threads);                                    \
    }                                                                                                                \
    EXPORT void radnet_backward_##NAME(                                                                              \
        const T* v, const T* r, const T* gy, T* gv, T* gt, index outer, index n, index inner, int kind, double b,    \
        double t, int threads) {                                                                                     \
        backward<T>(v, r, gy, gv, gt, outer, n, inner, {kind, T(b), T(t)}, threads);                                 \
    }                                                                                                                \
    EXPORT int radnet_chain_##NAME(                                                                                  \
        const T* x, T* y, index rows, int L, const index* layers, const double* numbers, int threads) {              \
        return chain<T>(layers_of<T>(L, layers, numbers), x, y, rows, threads);                                      \
    }                                                                                                                \
    EXPORT int radnet_chain_back_##NAME(                                                                             \
        const T* x, const T* gy, T* gx, T* gradients, index rows, int L, const index* layers,                        \
        const double* numbers, int threads) {                                                                        \
        return chain_back<T>(layers_of<T>(L, layers, numbers), x, gy, gx, gradients, rows, threads);                 \
    }

ENTRIES(float, float)
ENTRIES(double, double)
