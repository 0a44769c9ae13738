// The rescaling along an axis of a tensor (outer, n, inner): rows, whose vectors are contiguous, and columns.
//
// With g(r) = h(r - t) and s = g/r (rescaling.py):
//     y = s v,      grad_v = s gy + (g' - s) <gy, v>/r^2 v,      grad_t = - sum of g' <gy, v>/r.

#pragma once

#include <algorithm>

#include "lanes.hpp"
#include "profiles.hpp"

namespace {

// --- rows: a vector is contiguous

constexpr Index STRETCH = 1024;  // so many numbers in a row are added up before they are added in double

// the product of what stands at two places in a row, as many numbers as a register holds
template <class T>
INLINE Register<T> products(const T* a, const T* b) {
    Register<T> x, y;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return x * y;
}

// four registers are added to in turns, so that one addition does not wait for the one before
template <class T>
INLINE double dot(const T* __restrict a, const T* __restrict b, Index n) {
    constexpr Index W = TILE<T> / 2;
    double total = 0;
    for (Index start = 0; start < n; start += STRETCH) {
        const Index end = std::min(n, start + STRETCH);
        Register<T> s0{}, s1{}, s2{}, s3{};
        Index i = start;
        for (; i + 4 * W <= end; i += 4 * W) {
            s0 += products(a + i, b + i);
            s1 += products(a + i + W, b + i + W);
            s2 += products(a + i + 2 * W, b + i + 2 * W);
            s3 += products(a + i + 3 * W, b + i + 3 * W);
        }
        for (; i + W <= end; i += W) s0 += products(a + i, b + i);
        const Register<T> sum = (s0 + s1) + (s2 + s3);
        T lanes[W], rest = 0;
        std::memcpy(lanes, &sum, sizeof lanes);
        for (; i < end; ++i) rest += a[i] * b[i];
        for (Index width = W / 2; width; width /= 2)
            for (Index l = 0; l < width; ++l) lanes[l] += lanes[l + width];
        total += lanes[0] + rest;
    }
    return total;
}

// Rows are taken up to TILE at a time, so that profiles are evaluated side by side; as many as stay in the nearest cache.
template <class T>
INLINE Index rows_together(Index n) {
    return std::max<Index>(1, std::min(TILE<T>, 2048 / n));
}

constexpr Index SHORT = 32;  // rows below are turned into lanes first: a sum over so few numbers is no loop worth having

// A whole tile of rows of known length to lanes and back: written out, it is done by shuffling registers.
template <Index n, class T>
INLINE void tile_to_lanes(Lanes<T>* to, const T* from) {
    T* out = reinterpret_cast<T*>(to);
    for (Index i = 0; i < n; ++i)
        for (Index l = 0; l < TILE<T>; ++l) out[i * TILE<T> + l] = from[l * n + i];
}

template <Index n, class T>
INLINE void tile_from_lanes(T* to, const Lanes<T>* from) {
    const T* in = reinterpret_cast<const T*>(from);
    for (Index l = 0; l < TILE<T>; ++l)
        for (Index i = 0; i < n; ++i) to[l * n + i] = in[i * TILE<T> + l];
}

// small blocks are what these are for
template <class T>
INLINE void short_to_lanes(Lanes<T>* to, const T* from, Index n, Index rows) {
    if (rows == TILE<T> && n == 2) return tile_to_lanes<2, T>(to, from);
    if (rows == TILE<T> && n == 3) return tile_to_lanes<3, T>(to, from);
    if (rows == TILE<T> && n == 4) return tile_to_lanes<4, T>(to, from);
    to_lanes<T>(to, from, n, rows);
}

template <class T>
INLINE void short_from_lanes(T* to, const Lanes<T>* from, Index n, Index rows) {
    if (rows == TILE<T> && n == 2) return tile_from_lanes<2, T>(to, from);
    if (rows == TILE<T> && n == 3) return tile_from_lanes<3, T>(to, from);
    if (rows == TILE<T> && n == 4) return tile_from_lanes<4, T>(to, from);
    from_lanes<T>(to, from, n, rows);
}

// the same for short rows
template <class T>
INLINE int short_rows_forward(const T* v, T* y, T* r, Index begin, Index end, Index n, const Profile<T>& profile) {
    int found = ORDINARY;
    for (; begin < end; begin += TILE<T>) {
        const Index count = std::min(TILE<T>, end - begin);
        const T* rows = v + begin * n;
        Lanes<T> a[SHORT];
        Rescaling<T> at;
        short_to_lanes<T>(a, rows, n, count);
        const Lanes<T> t = profile.shifts_from(begin);
        const int seen = factors<false>(lanewise_dot<T>(a, a, n), count, profile, t, {rows, n, 1, n}, at);
        if (seen == EXTRAORDINARY) return EXTRAORDINARY;
        if (seen == SOME_ZERO) found = SOME_ZERO;
        scaled<T>(a, a, n, at.s);
        short_from_lanes<T>(y + begin * n, a, n, count);
        for (Index l = 0; l < (r ? count : 0); ++l) r[begin + l] = at.r[l];
    }
    return found;
}

template <class T>
INLINE void short_rows_backward(
    const T* v, const T* r, const T* gy, T* gv, T* gt, Index begin, Index end, Index n, const Profile<T>& profile) {
    for (; begin < end; begin += TILE<T>) {
        const Index count = std::min(TILE<T>, end - begin);
        Lanes<T> a[SHORT], g[SHORT], norms = Lanes<T>::all(0), first, second, along;
        short_to_lanes<T>(a, v + begin * n, n, count);
        short_to_lanes<T>(g, gy + begin * n, n, count);
        for (Index l = 0; l < count; ++l) norms.set(l, r[begin + l]);
        const Lanes<T> t = profile.shifts_from(begin), products = lanewise_dot<T>(a, g, n);
        gradient_factors<T>(products, at_norms(norms, profile, t), n, profile, t, first, second, along);
        for (Index i = 0; i < n; ++i) g[i] = first * g[i] + second * a[i];
        short_from_lanes<T>(gv + begin * n, g, n, count);
        for (Index l = 0; l < (gt ? count : 0); ++l) gt[begin + l] = along[l];
    }
}

template <class T>
INLINE int rows_forward(const T* v, T* y, T* r, Index begin, Index end, Index n, const Profile<T>& profile) {
    if (n < SHORT && end - begin > 1) return short_rows_forward(v, y, r, begin, end, n, profile);
    int found = ORDINARY;
    for (Index count; begin < end; begin += count) {
        count = std::min(rows_together<T>(n), end - begin);
        const T* rows = v + begin * n;
        Lanes<T> squares = Lanes<T>::all(1);
        Rescaling<T> at;
        for (Index l = 0; l < count; ++l) squares.set(l, T(dot(rows + l * n, rows + l * n, n)));
        const int seen = factors<false>(squares, count, profile, profile.shifts_from(begin), {rows, n, 1, n}, at);
        if (seen == EXTRAORDINARY) return EXTRAORDINARY;
        if (seen == SOME_ZERO) found = SOME_ZERO;
        for (Index l = 0; l < count; ++l) {
            const T *from = rows + l * n, factor = at.s[l];
            T* to = y + (begin + l) * n;  // may be the same place
            for (Index i = 0; i < n; ++i) to[i] = factor * from[i];
        }
        for (Index l = 0; l < (r ? count : 0); ++l) r[begin + l] = at.r[l];
    }
    return found;
}

template <class T>
INLINE void rows_backward(
    const T* v, const T* r, const T* gy, T* gv, T* gt, Index begin, Index end, Index n, const Profile<T>& profile) {
    if (n < SHORT && end - begin > 1) return short_rows_backward(v, r, gy, gv, gt, begin, end, n, profile);
    for (Index count; begin < end; begin += count) {
        count = std::min(rows_together<T>(n), end - begin);
        Lanes<T> products = Lanes<T>::all(0), norms = products, first, second, along;
        for (Index l = 0; l < count; ++l) {
            norms.set(l, r[begin + l]);
            products.set(l, T(dot(v + (begin + l) * n, gy + (begin + l) * n, n)));
        }
        const Lanes<T> t = profile.shifts_from(begin);
        gradient_factors<T>(products, at_norms(norms, profile, t), n, profile, t, first, second, along);
        for (Index l = 0; l < count; ++l) {
            const T* __restrict a = v + (begin + l) * n;
            const T* __restrict g = gy + (begin + l) * n;
            T* __restrict to = gv + (begin + l) * n;
            const T s = first[l], c = second[l];
            for (Index i = 0; i < n; ++i) to[i] = s * g[i] + c * a[i];
        }
        for (Index l = 0; l < (gt ? count : 0); ++l) gt[begin + l] = along[l];
    }
}

// --- columns: vectors side by side, so entry i of the next one is beside entry i of this one; they have one shift

constexpr Index WIDTH = 512;  // columns that are worked on together

template <class T>
INLINE int columns_forward(const T* v, T* y, T* r, Index count, Index n, Index inner, const Profile<T>& profile) {
    alignas(64) T squares[WIDTH] = {}, s[WIDTH];
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < count; ++j) squares[j] += v[i * inner + j] * v[i * inner + j];
    const Lanes<T> t = Lanes<T>::all(profile.t);
    int found = ORDINARY;
    for (Index j = 0; j < count; j += TILE<T>) {
        const Index lanes = std::min(TILE<T>, count - j);
        Rescaling<T> at;
        const int seen = factors<false>(load<T>(squares + j), lanes, profile, t, {v + j, n, inner, 1}, at);
        if (seen == EXTRAORDINARY) return EXTRAORDINARY;
        if (seen == SOME_ZERO) found = SOME_ZERO;
        store<T>(s + j, at.s);
        for (Index l = 0; l < (r ? lanes : 0); ++l) r[j + l] = at.r[l];
    }
    for (Index i = 0; i < n; ++i) {
        const T* __restrict from = v + i * inner;
        T* __restrict to = y + i * inner;
        for (Index j = 0; j < count; ++j) to[j] = s[j] * from[j];
    }
    return found;
}

template <class T>
INLINE void columns_backward(
    const T* v, const T* r, const T* gy, T* gv, T* gt, Index count, Index n, Index inner, const Profile<T>& profile) {
    alignas(64) T products[WIDTH] = {}, s[WIDTH], c[WIDTH];
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < count; ++j) products[j] += v[i * inner + j] * gy[i * inner + j];
    const Lanes<T> t = Lanes<T>::all(profile.t);
    for (Index j = 0; j < count; j += TILE<T>) {
        const Index lanes = std::min(TILE<T>, count - j);
        Lanes<T> norms = Lanes<T>::all(0), first, second, along;
        for (Index l = 0; l < lanes; ++l) norms.set(l, r[j + l]);
        const Lanes<T> found = load<T>(products + j);
        gradient_factors<T>(found, at_norms(norms, profile, t), n, profile, t, first, second, along);
        store<T>(s + j, first);
        store<T>(c + j, second);
        for (Index l = 0; l < (gt ? lanes : 0); ++l) gt[j + l] = along[l];
    }
    for (Index i = 0; i < n; ++i) {
        const T* __restrict a = v + i * inner;
        const T* __restrict g = gy + i * inner;
        T* __restrict to = gv + i * inner;
        for (Index j = 0; j < count; ++j) to[j] = s[j] * g[j] + c[j] * a[j];
    }
}

}  // namespace
