// Radial rescaling, and chains of layers with it, on raw memory: what `radnet.native` calls where no tracer looks on.
//
// Every function says by what it returns how its norms were: 0 if one of them was extraordinary (its square over- or
// underflows, or it is not a number), and then nothing that was written counts; 1 if all were ordinary; 2 if all were but
// for those of vectors that are exactly 0. What to do with the others the caller knows (rescaling.py).

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "chains.hpp"
#include "lanes.hpp"
#include "profiles.hpp"
#include "rescaling.hpp"
#include "threads.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr Index WIDE = 1 << 16;  // weights of a layer that threads share when there is one sample
constexpr int ABI = 2;  // what radnet/native/library.py expects

// --- for each instruction set

#define RANGES(T, NAME)                                                                                              \
    FOR_EACH_CPU int rows_forward_##NAME(                                                                            \
        const T* v, T* y, T* r, Index begin, Index end, Index n, const Profile<T>& profile) {                        \
        return rows_forward<T>(v, y, r, begin, end, n, profile);                                                     \
    }                                                                                                                \
    FOR_EACH_CPU int columns_forward_##NAME(                                                                         \
        const T* v, T* y, T* r, Index count, Index n, Index inner, const Profile<T>& profile) {                      \
        return columns_forward<T>(v, y, r, count, n, inner, profile);                                                \
    }                                                                                                                \
    FOR_EACH_CPU void rows_backward_##NAME(                                                                          \
        const T* v, const T* r, const T* gy, T* gv, T* gt, Index begin, Index end, Index n,                          \
        const Profile<T>& profile) {                                                                                 \
        rows_backward<T>(v, r, gy, gv, gt, begin, end, n, profile);                                                  \
    }                                                                                                                \
    FOR_EACH_CPU void columns_backward_##NAME(                                                                       \
        const T* v, const T* r, const T* gy, T* gv, T* gt, Index count, Index n, Index inner,                        \
        const Profile<T>& profile) {                                                                                 \
        columns_backward<T>(v, r, gy, gv, gt, count, n, inner, profile);                                             \
    }                                                                                                                \
    FOR_EACH_CPU int chain_range_##NAME(                                                                             \
        const std::vector<Layer<T>>& layers, const T* x, T* y, Index begin, Index end) {                             \
        return chain_range<T>(layers, x, y, begin, end);                                                             \
    }                                                                                                                \
    FOR_EACH_CPU void layer_row_##NAME(const Layer<T>& layer, const T* from, T* to, Index begin, Index end) {        \
        layer_row<T>(layer, from, to, begin, end);                                                                   \
    }                                                                                                                \
    FOR_EACH_CPU int chain_back_range_##NAME(                                                                        \
        const std::vector<Layer<T>>& layers, const Trail<T>& trail, const T* x, const T* given, Squares<T>* squares, \
        T* gx, Index begin, Index end, Lanes<T>* kept, Lanes<T>* work, Lanes<T>* sums, double* totals) {             \
        return chain_back_range<T>(layers, trail, x, given, squares, gx, begin, end, kept, work, sums, totals);      \
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
OVERLOAD(void, layer_row)
OVERLOAD(int, chain_back_range)

// --- what is called from outside: v is (outer, n, inner) and contiguous; `blocks` shifts, if there are any, in turns

template <class T>
int forward(
    const T* v, T* y, T* r, Index outer, Index n, Index inner, const Profile<T>& profile, int threads) {
    constexpr T* TYPE = nullptr;
    Seen seen;
    if (inner == 1) {
        in_parallel(outer, threads, [&](int, Index begin, Index end) {
            seen.note(rows_forward(TYPE, v, y, r, begin, end, n, profile));
        });
        return seen.worst;
    }
    const Index tiles = (inner + WIDTH - 1) / WIDTH;
    in_parallel(outer * tiles, threads, [&](int, Index begin, Index end) {
        for (Index k = begin; k < end && seen.worst != EXTRAORDINARY; ++k) {
            const Index o = k / tiles, j = k % tiles * WIDTH, at = o * n * inner + j;
            T* norms = r ? r + o * inner + j : nullptr;
            const Index count = std::min(WIDTH, inner - j);
            seen.note(columns_forward(TYPE, v + at, y + at, norms, count, n, inner, profile.of(o)));
        }
    });
    return seen.worst;
}

template <class T>
void backward(
    const T* v, const T* r, const T* gy, T* gv, T* gt, Index outer, Index n, Index inner, const Profile<T>& profile,
    int threads) {
    constexpr T* TYPE = nullptr;
    if (inner == 1) {
        in_parallel(outer, threads, [&](int, Index begin, Index end) {
            rows_backward(TYPE, v, r, gy, gv, gt, begin, end, n, profile);
        });
        return;
    }
    const Index tiles = (inner + WIDTH - 1) / WIDTH;
    in_parallel(outer * tiles, threads, [&](int, Index begin, Index end) {
        for (Index k = begin; k < end; ++k) {
            const Index o = k / tiles, j = k % tiles * WIDTH, at = o * n * inner + j, norm = o * inner + j;
            columns_backward(
                TYPE, v + at, r + norm, gy + at, gv + at, gt ? gt + norm : nullptr, std::min(WIDTH, inner - j), n, inner,
                profile.of(o));
        }
    });
}

// a chain as it comes from outside; for each layer: in, out, where W is, where b is (or 0), the kind of the profile;
// and the profile's b and t
template <class T>
std::vector<Layer<T>> layers_of(int L, const Index* given, const double* numbers) {
    std::vector<Layer<T>> layers;
    for (int k = 0; k < L; ++k, given += 5, numbers += 2)
        layers.push_back(
            {given[0], given[1], reinterpret_cast<const T*>(given[2]), reinterpret_cast<const T*>(given[3]),
             {int(given[4]), T(numbers[0]), T(numbers[1])}});
    return layers;
}

// one sample through wide layers: threads share the outputs of each
template <class T>
int wide_row(const std::vector<Layer<T>>& layers, const T* x, T* y, int threads) {
    constexpr T* TYPE = nullptr;
    const Index most = widest(layers);
    std::vector<T> memory(2 * most);
    Seen seen;
    const T* from = x;
    for (const auto& layer : layers) {
        T *first = memory.data(), *to = &layer == &layers.back() ? y : (from == first ? first + most : first);
        in_parallel(layer.out, layer.in * layer.out < WIDE ? 1 : threads, [&](int, Index begin, Index end) {
            layer_row(TYPE, layer, from, to, begin, end);
        });
        if (!layer.profile.does_nothing())
            seen.note(rows_forward(TYPE, to, to, nullptr, 0, 1, layer.out, layer.profile));
        from = to;
    }
    return seen.worst;
}

template <class T>
int chain(const std::vector<Layer<T>>& layers, const T* x, T* y, Index rows, int threads) {
    constexpr T* TYPE = nullptr;
    Seen seen;
    if (rows < FEW && threads > 1) {
        for (Index k = 0; k < rows; ++k)
            seen.note(wide_row<T>(layers, x + k * layers[0].in, y + k * layers.back().out, threads));
        return seen.worst;
    }
    const Index tiles = (rows + TILE<T> - 1) / TILE<T>;
    in_parallel(tiles, threads, [&](int, Index begin, Index end) {
        seen.note(chain_range(TYPE, layers, x, y, begin * TILE<T>, std::min(rows, end * TILE<T>)));
    });
    return seen.worst;
}

// Gradients of all layers, one after the other: W (out x in), b, t; from the gradient of the outputs, or, if `loss` is not
// null, from targets: then it is the mean square of the differences, and the gradients are its own.
template <class T>
int chain_back(
    const std::vector<Layer<T>>& layers, const T* x, const T* given, T* gx, T* gradients, double* loss, Index rows,
    int threads) {
    constexpr T* TYPE = nullptr;
    const Trail<T> trail(layers);
    const Index tiles = (rows + TILE<T> - 1) / TILE<T>, wide = padded<T>(trail.most);
    threads = int(std::max<Index>(1, std::min<Index>(threads, tiles)));
    const Index work = 2 * trail.most + TILE<T> * wide, each = trail.kept + work + trail.sums;
    const Memory<T> memory(threads * each);
    if (!memory.get()) return EXTRAORDINARY;
    const double numbers = double(rows) * double(layers.back().out);
    std::vector<Squares<T>> squares(threads, {0, T(1 / numbers)});
    const Index sums = trail.sums * TILE<T>;
    std::unique_ptr<double[]> totals(new (std::nothrow) double[threads * sums]());
    if (!totals) return EXTRAORDINARY;
    Seen seen;
    in_parallel(tiles, threads, [&](int k, Index begin, Index end) {
        Lanes<T>*kept = memory.get() + k * each, *free = kept + trail.kept;
        seen.note(chain_back_range(
            TYPE, layers, trail, x, given, loss ? &squares[k] : nullptr, gx, begin * TILE<T>,
            std::min(rows, end * TILE<T>), kept, free, free + work, totals.get() + k * sums));
    });
    for (int k = 1; k < threads; ++k) {
        squares[0].sum += squares[k].sum;
        for (Index i = 0; i < sums; ++i) totals[i] += totals[k * sums + i];
    }
    if (loss) *loss = squares[0].sum / numbers;
    gathered<T>(layers, trail, totals.get(), gradients);
    return seen.worst;
}

}  // namespace

EXPORT int radnet_abi() { return ABI; }

#define ENTRIES(T, NAME)                                                                                             \
    EXPORT int radnet_forward_##NAME(                                                                                \
        const T* v, T* y, T* r, Index outer, Index n, Index inner, int kind, double b, double t, const T* shifts,    \
        Index blocks, int threads) {                                                                                 \
        const auto turns = in_turns<T>(shifts, blocks);                                                              \
        const Profile<T> profile{kind, T(b), T(t), shifts ? turns.data() : nullptr, blocks};                         \
        return forward<T>(v, y, r, outer, n, inner, profile, threads);                                               \
    }                                                                                                                \
    EXPORT void radnet_backward_##NAME(                                                                              \
        const T* v, const T* r, const T* gy, T* gv, T* gt, Index outer, Index n, Index inner, int kind, double b,    \
        double t, const T* shifts, Index blocks, int threads) {                                                      \
        const auto turns = in_turns<T>(shifts, blocks);                                                              \
        const Profile<T> profile{kind, T(b), T(t), shifts ? turns.data() : nullptr, blocks};                         \
        backward<T>(v, r, gy, gv, gt, outer, n, inner, profile, threads);                                            \
    }                                                                                                                \
    EXPORT int radnet_chain_##NAME(                                                                                  \
        const T* x, T* y, Index rows, int L, const Index* layers, const double* numbers, int threads) {              \
        return chain<T>(layers_of<T>(L, layers, numbers), x, y, rows, threads);                                      \
    }                                                                                                                \
    EXPORT int radnet_chain_back_##NAME(                                                                             \
        const T* x, const T* given, T* gx, T* gradients, double* loss, Index rows, int L, const Index* layers,       \
        const double* numbers, int threads) {                                                                        \
        return chain_back<T>(layers_of<T>(L, layers, numbers), x, given, gx, gradients, loss, rows, threads);        \
    }

ENTRIES(float, float)
ENTRIES(double, double)
