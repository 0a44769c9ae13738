// A chain of linear layers and rescalings: a tile of samples goes through all layers, one sample to each lane, and stays in
// the cache. For the gradient it goes through once more, keeping what the way back needs.

#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "lanes.hpp"
#include "profiles.hpp"
#include "rescaling.hpp"

namespace {

template <class T>
struct Layer {
    Index in, out;
    const T* W;  // out x in
    const T* b;  // out, or null
    Profile<T> profile;
};

template <class T>
Index widest(const std::vector<Layer<T>>& layers) {
    Index most = layers[0].in;
    for (const auto& layer : layers) most = std::max(most, layer.out);
    return most;
}

// how many lanes hold n numbers
template <class T>
constexpr Index padded(Index n) {
    return (n + TILE<T> - 1) / TILE<T>;
}

// out[o] = b[o] + sum over i of W[o, i] a[i], for all lanes; W[o, i] is at W[o * by_out + i * by_in]
template <class T>
INLINE void product(
    Lanes<T>* __restrict out, const Lanes<T>* __restrict a, const T* __restrict W, const T* __restrict b, Index outs,
    Index ins, Index by_out, Index by_in) {
    Index o = 0;
    for (; o + 4 <= outs; o += 4) {
        Lanes<T> s0 = Lanes<T>::all(b ? b[o] : 0), s1 = Lanes<T>::all(b ? b[o + 1] : 0);
        Lanes<T> s2 = Lanes<T>::all(b ? b[o + 2] : 0), s3 = Lanes<T>::all(b ? b[o + 3] : 0);
        for (Index i = 0; i < ins; ++i) {
            const T* w = W + o * by_out + i * by_in;
            s0 += a[i] * w[0];
            s1 += a[i] * w[by_out];
            s2 += a[i] * w[2 * by_out];
            s3 += a[i] * w[3 * by_out];
        }
        out[o] = s0, out[o + 1] = s1, out[o + 2] = s2, out[o + 3] = s3;
    }
    for (; o < outs; ++o) {
        Lanes<T> s = Lanes<T>::all(b ? b[o] : 0);
        for (Index i = 0; i < ins; ++i) s += a[i] * W[o * by_out + i * by_in];
        out[o] = s;
    }
}

template <bool with_slope, class T>
INLINE int tile_factors(const Lanes<T>& squares, const Lanes<T>* v, const Layer<T>& layer, Rescaling<T>& to) {
    const T* entries = reinterpret_cast<const T*>(v);
    const Lanes<T> t = Lanes<T>::all(layer.profile.t);
    return factors<with_slope>(squares, TILE<T>, layer.profile, t, {entries, layer.out, TILE<T>, 1}, to);
}

// --- forward

constexpr Index GROUP = 4;  // tiles that go through the layers abreast: while one waits for its root, others multiply

// `most` lanes lie between what belongs to one tile of a group and to the next
template <class T>
INLINE int chain_group(
    const std::vector<Layer<T>>& layers, const T* x, T* y, Index rows, Lanes<T>* a, Lanes<T>* z, Index most) {
    const Index in = layers[0].in, out = layers.back().out, tiles = (rows + TILE<T> - 1) / TILE<T>;
    int found = ORDINARY;
    for (Index k = 0; k < tiles; ++k)
        to_lanes<T>(a + k * most, x + k * TILE<T> * in, in, std::min(TILE<T>, rows - k * TILE<T>));
    for (const auto& layer : layers) {
        for (Index k = 0; k < tiles; ++k)
            product<T>(z + k * most, a + k * most, layer.W, layer.b, layer.out, layer.in, layer.in, 1);
        if (!layer.profile.does_nothing()) {
            Rescaling<T> at[GROUP];
            for (Index k = 0; k < tiles; ++k) {
                const Lanes<T>* v = z + k * most;
                const int norms = tile_factors<false>(lanewise_dot<T>(v, v, layer.out), v, layer, at[k]);
                if (norms == EXTRAORDINARY) return EXTRAORDINARY;
                if (norms == SOME_ZERO) found = SOME_ZERO;
            }
            for (Index k = 0; k < tiles; ++k) scaled<T>(z + k * most, z + k * most, layer.out, at[k].s);
        }
        std::swap(a, z);
    }
    for (Index k = 0; k < tiles; ++k)
        from_lanes<T>(y + k * TILE<T> * out, a + k * most, out, std::min(TILE<T>, rows - k * TILE<T>));
    return found;
}

// some of the outputs of a layer for one sample: every product is a row of W with a vector
template <class T>
INLINE void layer_row(const Layer<T>& layer, const T* from, T* to, Index begin, Index end) {
    for (Index o = begin; o < end; ++o)
        to[o] = T(dot(layer.W + o * layer.in, from, layer.in)) + (layer.b ? layer.b[o] : T(0));
}

template <class T>
INLINE int chain_row(const std::vector<Layer<T>>& layers, const T* x, T* y, T* a, T* z) {
    int found = ORDINARY;
    const T* from = x;
    for (const auto& layer : layers) {
        T* to = &layer == &layers.back() ? y : (from == a ? z : a);
        layer_row(layer, from, to, 0, layer.out);
        if (!layer.profile.does_nothing()) {
            const int norms = rows_forward<T>(to, to, nullptr, 0, 1, layer.out, layer.profile);
            if (norms == EXTRAORDINARY) return EXTRAORDINARY;
            if (norms == SOME_ZERO) found = SOME_ZERO;
        }
        from = to;
    }
    return found;
}

constexpr Index FEW = 5;  // samples that go one by one

template <class T>
INLINE int chain_range(const std::vector<Layer<T>>& layers, const T* x, T* y, Index begin, Index end) {
    const Index in = layers[0].in, out = layers.back().out, most = widest(layers);
    const bool few = begin == 0 && end < FEW;  // all there are: what a sample gives must not depend on how threads share
    const Memory<T> memory(few ? padded<T>(2 * most) : 2 * GROUP * most);
    if (!memory.get()) return EXTRAORDINARY;
    int found = ORDINARY;
    while (begin < end) {
        const Index rows = std::min(end - begin, GROUP * TILE<T>);
        int norms = ORDINARY;
        if (few) {
            T* a = reinterpret_cast<T*>(memory.get());
            norms = chain_row(layers, x + begin * in, y + begin * out, a, a + most);
            begin += 1;
        } else {
            Lanes<T>* a = memory.get();
            norms = chain_group<T>(layers, x + begin * in, y + begin * out, rows, a, a + GROUP * most, most);
            begin += rows;
        }
        if (norms == EXTRAORDINARY) return EXTRAORDINARY;
        if (norms == SOME_ZERO) found = SOME_ZERO;
    }
    return found;
}

// --- backward

constexpr Index SUMMED = 64;  // tiles whose gradients are added up before they are added to the others, in double

// Where one thread keeps things, in lanes: for each layer what comes in, the values before and after its rescaling;
// the gradients of its W, b and t. A small W has a sum in every lane, which are added up in the end; a large one is a
// matrix whose rows are padded to whole lanes.
template <class T>
struct Trail {
    struct Places {
        Index a, z, out, W, b, t;
        bool small;
        Index stride;  // of a large W, in numbers
    };

    static constexpr Index SMALL = 512;  // weights: their sums take half of the nearest cache
    std::vector<Places> layers;
    Index kept = 0, sums = 0, most = 0;  // lanes

    explicit Trail(const std::vector<Layer<T>>& given) : most(widest(given)) {
        kept = given[0].in;
        Index a = 0;
        for (const auto& layer : given) {
            Places at{};
            at.a = a, at.z = kept, at.out = at.z + layer.out, a = at.out;
            kept = a + layer.out;
            at.small = layer.in * layer.out <= SMALL;
            at.stride = padded<T>(layer.in) * TILE<T>;
            at.W = sums, at.b = at.W + (at.small ? layer.in : padded<T>(layer.in)) * layer.out;
            at.t = at.b + layer.out, sums = at.t + 1;
            layers.push_back(at);
        }
    }
};

// A layer for the few samples that went one by one: the same sums in the same order, so that no norm is now on the other
// side of a jump. Gives the squares of the norms.
template <class T>
INLINE Lanes<T> few_rows(const Layer<T>& layer, const Lanes<T>* a, Lanes<T>* z, Index rows, T* from, T* to) {
    Lanes<T> squares = Lanes<T>::all(1);
    for (Index l = 0; l < TILE<T>; ++l) {
        if (l < rows) {
            for (Index i = 0; i < layer.in; ++i) from[i] = a[i][l];
            layer_row(layer, from, to, 0, layer.out);
        }
        for (Index o = 0; o < layer.out; ++o) z[o].set(l, to[o]);
        squares.set(l, T(dot(to, to, layer.out)));
    }
    return squares;
}

template <class T>
INLINE int forward_again(
    const std::vector<Layer<T>>& layers, const Trail<T>& trail, const T* x, Index rows, bool few, Lanes<T>* kept,
    Lanes<T>* work, Rescaling<T>* rescalings) {
    int found = ORDINARY;
    to_lanes<T>(kept, x, layers[0].in, rows);
    for (std::size_t k = 0; k < layers.size(); ++k) {
        const auto& layer = layers[k];
        const auto& at = trail.layers[k];
        Lanes<T>*z = kept + at.z, squares;
        if (few) {
            T* scratch = reinterpret_cast<T*>(work);
            squares = few_rows<T>(layer, kept + at.a, z, rows, scratch, scratch + trail.most * TILE<T>);
        } else {
            product<T>(z, kept + at.a, layer.W, layer.b, layer.out, layer.in, layer.in, 1);
            squares = lanewise_dot<T>(z, z, layer.out);
        }
        if (layer.profile.does_nothing()) {
            std::copy(z, z + layer.out, kept + at.out);
            continue;
        }
        const int norms = tile_factors<true>(squares, z, layer, rescalings[k]);
        if (norms == EXTRAORDINARY) return EXTRAORDINARY;
        if (norms == SOME_ZERO) found = SOME_ZERO;
        scaled<T>(kept + at.out, z, layer.out, rescalings[k].s);
    }
    return found;
}

// the gradient of W from what came in (a) and what comes back (g)
template <class T>
INLINE void add_weights(
    const Layer<T>& layer, const typename Trail<T>::Places& at, const Lanes<T>* a, const Lanes<T>* g, Lanes<T>* sums,
    T* transposed) {
    Lanes<T>* gW = sums + at.W;
    if (at.small) {
        for (Index o = 0; o < layer.out; ++o) {
            const Lanes<T> c = g[o];
            Lanes<T>* __restrict to = gW + o * layer.in;
            for (Index i = 0; i < layer.in; ++i) to[i] += c * a[i];
        }
        return;
    }
    const T* entries = reinterpret_cast<const T*>(a);
    for (Index l = 0; l < TILE<T>; ++l)
        for (Index i = 0; i < layer.in; ++i) transposed[l * at.stride + i] = entries[i * TILE<T> + l];
    const Lanes<T>* rows = reinterpret_cast<const Lanes<T>*>(transposed);
    const Index wide = at.stride / TILE<T>;
    Index o = 0;
    for (; o + 2 <= layer.out; o += 2)
        for (Index i = 0; i < wide; ++i) {
            Lanes<T> s0 = gW[o * wide + i], s1 = gW[(o + 1) * wide + i];
            for (Index l = 0; l < TILE<T>; ++l) {
                s0 += g[o][l] * rows[l * wide + i];
                s1 += g[o + 1][l] * rows[l * wide + i];
            }
            gW[o * wide + i] = s0, gW[(o + 1) * wide + i] = s1;
        }
    for (; o < layer.out; ++o)
        for (Index i = 0; i < wide; ++i)
            for (Index l = 0; l < TILE<T>; ++l) gW[o * wide + i] += g[o][l] * rows[l * wide + i];
}

template <class T>
INLINE double over_lanes(const Lanes<T>& x) {
    double total = 0;
    for (Index l = 0; l < TILE<T>; ++l) total += x[l];
    return total;
}

// The sum of the squares of outputs less targets, and what its gradient is to be multiplied by.
template <class T>
struct Squares {
    double sum;
    T times;
};

// What comes back to the outputs of a tile: the gradient that is given, or, where `given` are targets, that of `squares`.
template <class T>
INLINE void coming_back(
    Lanes<T>* g, const T* given, const Lanes<T>* outputs, Index n, Index rows, Squares<T>* squares) {
    to_lanes<T>(g, given, n, rows);
    Lanes<T> sum = Lanes<T>::all(0);
    for (Index o = 0; o < n; ++o) {
        if (squares) g[o] = outputs[o] - g[o];
        for (Index l = rows; l < TILE<T>; ++l) g[o].set(l, 0);  // the rows that were repeated count for nothing
        if (!squares) continue;
        sum += g[o] * g[o];
        g[o] = 2 * squares->times * g[o];
    }
    if (squares) squares->sum += over_lanes(sum);
}

template <class T>
INLINE int chain_back_range(
    const std::vector<Layer<T>>& layers, const Trail<T>& trail, const T* x, const T* given, Squares<T>* squares, T* gx,
    Index begin, Index end, Lanes<T>* kept, Lanes<T>* work, Lanes<T>* sums, double* totals) {
    const Index L = Index(layers.size()), in = layers[0].in, out = layers.back().out;
    const Lanes<T>* outputs = kept + trail.layers.back().out;
    std::vector<Rescaling<T>> rescalings(layers.size());
    Lanes<T>*g = work, *next = work + trail.most;
    T* transposed = reinterpret_cast<T*>(work + 2 * trail.most);
    int found = ORDINARY;
    const bool few = begin == 0 && end < FEW;
    for (Index tiles = 1; begin < end; begin += TILE<T>, ++tiles) {
        const Index rows = std::min(end - begin, TILE<T>);
        const int norms = forward_again<T>(layers, trail, x + begin * in, rows, few, kept, work, rescalings.data());
        if (norms == EXTRAORDINARY) return EXTRAORDINARY;
        if (norms == SOME_ZERO) found = SOME_ZERO;
        coming_back<T>(g, given + begin * out, outputs, out, rows, squares);
        for (Index k = L - 1; k >= 0; --k) {
            const auto& layer = layers[k];
            const auto& at = trail.layers[k];
            if (!layer.profile.does_nothing()) {
                const Lanes<T>* z = kept + at.z;
                Lanes<T> first, second, along;
                gradient_factors<T>(
                    lanewise_dot<T>(g, z, layer.out), rescalings[k], layer.out, layer.profile,
                    Lanes<T>::all(layer.profile.t), first, second, along);
                sums[at.t] -= along;
                for (Index o = 0; o < layer.out; ++o) g[o] = first * g[o] + second * z[o];
            }
            for (Index o = 0; o < layer.out; ++o) sums[at.b + o] += g[o];
            add_weights<T>(layer, at, kept + at.a, g, sums, transposed);
            if (k > 0 || gx) {
                product<T>(next, g, layer.W, nullptr, layer.in, layer.out, 1, layer.in);
                std::swap(g, next);
            }
        }
        if (gx) from_lanes<T>(gx + begin * in, g, in, rows);
        if (tiles % SUMMED == 0 || begin + TILE<T> >= end) {
            T* entries = reinterpret_cast<T*>(sums);
            for (Index i = 0; i < trail.sums * TILE<T>; ++i) totals[i] += entries[i], entries[i] = 0;
        }
    }
    return found;
}

// what was summed, as W (out x in), b and t of each layer, one after the other
template <class T>
void gathered(const std::vector<Layer<T>>& layers, const Trail<T>& trail, const double* totals, T* to) {
    const auto sum = [&](Index at) { return T(std::accumulate(totals + at * TILE<T>, totals + (at + 1) * TILE<T>, 0.0)); };
    for (std::size_t k = 0; k < layers.size(); ++k) {
        const Index in = layers[k].in, out = layers[k].out;
        const auto& at = trail.layers[k];
        const double* large = totals + at.W * TILE<T>;
        for (Index o = 0; o < out; ++o)
            for (Index i = 0; i < in; ++i) *to++ = at.small ? sum(at.W + o * in + i) : T(large[o * at.stride + i]);
        for (Index o = 0; o <= out; ++o) *to++ = sum(at.b + o);
    }
}

}  // namespace
