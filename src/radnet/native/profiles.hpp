// Profiles of norms, in lanes: g(r) = h(r - t) and its derivative, and what a rescaling and its gradient multiply by.

#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "lanes.hpp"

namespace {

// how the norms were: what every function says, see kernels.cpp
enum Norms : int { EXTRAORDINARY = 0, ORDINARY = 1, SOME_ZERO = 2 };
// as in kernels.py
enum Kind : int {
    NOTHING = -1,
    IDENTITY = 0,
    STEP_RELU = 1,
    SQUASH = 2,
    SHIFTED_RELU = 3,
    SIGMOID = 4,
    SIN = 5,
    GAUSSIAN = 6,
    TANH = 7,
    SWISH = 8,
};

// 1/(1 + e^-x), and 1 less that
template <class T>
struct Sigmoid {
    Lanes<T> up, down;

    INLINE explicit Sigmoid(const Lanes<T>& x) {
        const Lanes<T> e = falling(x), one = Lanes<T>::all(1), share = one / (e + T(1));
        up = where(x >= T(0), one, e) * share;
        down = where(x >= T(0), e, one) * share;
    }
};

// tanh(x) = -m/(m + 2) with m = e^(-2|x|) - 1 and the sign of x; near 0 m is a series of its own, as 1 would cancel
template <class T>
INLINE Lanes<T> hyperbolic_tangent(const Lanes<T>& x) {
    const Lanes<T> down = T(-2) * where(x < T(0), -x, x), least = Lanes<T>::all(-Number<T>::far);
    const Lanes<T> y = where(down < -Number<T>::far, least, down);
    const Lanes<T> m = where(y > T(-0.34), y * series<T, 2>(y), exponential(y) - T(1)), size = -m / (m + T(2));
    return where(x < T(0), -size, size);
}

template <class T>
INLINE Lanes<T> clamped(const Lanes<T>& x, T most) {
    const Lanes<T> up = where(x > most, Lanes<T>::all(most), x);
    return where(up < -most, Lanes<T>::all(-most), up);
}

// The profiles that cost more than a call does: compiled once for each instruction set, not wherever they are used.
template <class T>
INLINE void smooth_profile(int kind, const Lanes<T>& x, Lanes<T>& g, Lanes<T>* slope) {
    if (kind == SIN) {
        Lanes<T> cosine;
        sine_and_cosine(x, g, cosine);
        if (slope) *slope = cosine;
    } else if (kind == GAUSSIAN) {
        const Lanes<T> c = clamped<T>(x, 64), q = c * c, e = falling(T(0.5) * q);
        g = x * e;
        if (slope) *slope = (T(1) - q) * e;
    } else if (kind == TANH) {
        g = hyperbolic_tangent(x);
        if (!slope) return;
        const Sigmoid<T> s(T(2) * x);
        *slope = T(4) * s.up * s.down;
    } else {
        const Sigmoid<T> s(x);
        g = x * s.up;
        if (slope) *slope = s.up * (T(1) + x * s.down);
    }
}
#define SMOOTH(T, NAME)                                                                                              \
    FOR_EACH_CPU void smooth_##NAME(int kind, const Lanes<T>& x, Lanes<T>& g, Lanes<T>* slope) {                     \
        smooth_profile<T>(kind, x, g, slope);                                                                        \
    }                                                                                                                \
    INLINE void smooth(int kind, const Lanes<T>& x, Lanes<T>& g, Lanes<T>* slope) { smooth_##NAME(kind, x, g, slope); }
SMOOTH(float, float)
SMOOTH(double, double)
#undef SMOOTH

// so many shifts, and then the first ones again, so that a tile is read wherever it begins
template <class T>
std::vector<T> in_turns(const T* shifts, Index count) {
    std::vector<T> found(shifts ? count + TILE<T> : 0);
    for (std::size_t k = 0; k < found.size(); ++k) found[k] = shifts[Index(k) % count];
    return found;
}

// h, with one shift for all vectors, or vector k with shift k modulo how many there are (`in_turns`)
template <class T>
struct Profile {
    int kind;
    T b, t;  // of the shifted ReLU; the one shift
    const T* shifts = nullptr;
    Index count = 1;

    bool does_nothing() const { return kind == NOTHING; }

    // the shifts of a tile of vectors, from this one on
    INLINE Lanes<T> shifts_from(Index vector) const {
        return shifts ? load<T>(shifts + vector % count) : Lanes<T>::all(t);
    }

    // the profile of one vector
    INLINE Profile of(Index vector) const { return shifts ? Profile{kind, b, shifts[vector % count]} : *this; }

    // g at norms less shifts, and g' with it where that is asked for
    template <bool with_slope>
    INLINE void evaluate(const Lanes<T>& x, Lanes<T>& g, Lanes<T>& slope) const {
        const Lanes<T> none = Lanes<T>::all(0), one = Lanes<T>::all(1);
        switch (kind) {
            case STEP_RELU:
                g = where(x >= T(1), x, none);
                if (with_slope) slope = where(x >= T(1), one, none);
                return;
            case SQUASH: {
                const Lanes<T> c = clamped<T>(x, std::sqrt(std::numeric_limits<T>::max()) / 2);
                const Lanes<T> q = c * c, p = q + T(1);
                g = q / p;
                if (with_slope) slope = T(2) * (c / p) / p;
                return;
            }
            case SHIFTED_RELU:
                g = where(x >= b, x - b, none);
                if (with_slope) slope = where(x >= b, one, none);
                return;
            case SIGMOID: {
                const Sigmoid<T> s(x);
                g = s.up;
                if (with_slope) slope = s.up * s.down;
                return;
            }
            case SIN:
            case GAUSSIAN:
            case TANH:
            case SWISH:
                return smooth(kind, x, g, with_slope ? &slope : nullptr);
            default:
                g = x;
                if (with_slope) slope = one;
        }
    }

    // the gradient at v = 0: g'(0) if g(0) = 0, else 0
    INLINE Lanes<T> slope_at_zero(const Lanes<T>& t) const {
        Lanes<T> g, slope;
        evaluate<true>(-t, g, slope);
        const Mask<T> finite = (slope - slope) == T(0);
        return where((g == T(0)) & finite, slope, Lanes<T>::all(0));
    }
};

template <class T>
INLINE bool all_zero(const T* v, Index n, Index stride) {
    for (Index i = 0; i < n; ++i)
        if (v[i * stride] != 0) return false;
    return true;
}

// What a rescaling does to the vectors of a tile: their norms r, the factors s = g(r)/r, and g'(r) where it is asked for.
template <class T>
struct Rescaling {
    Lanes<T> r, s, slope;
};

// Where the entries of the vectors of a tile are: entry i of vector l at v[i * by_entry + l * by_vector], n of them.
template <class T>
struct Entries {
    const T* v;
    Index n, by_entry, by_vector;
};

// From squares of norms (of the first `count` lanes) and shifts; s is 0 where a vector is exactly 0.
template <bool with_slope, class T>
INLINE int factors(
    const Lanes<T>& squares, Index count, const Profile<T>& profile, const Lanes<T>& t, const Entries<T>& at,
    Rescaling<T>& to) {
    const Lanes<T> r = square_root(squares);
    const Mask<T> fine = (r >= Number<T>::low) & (r <= Number<T>::high);
    const Lanes<T> safe = where(fine, r, Lanes<T>::all(1));
    Lanes<T> g;
    profile.template evaluate<with_slope>(safe - t, g, to.slope);
    to.r = r;
    to.s = where(fine, g / safe, Lanes<T>::all(0));
    if (__builtin_expect(!(~fine).any(), 1)) return ORDINARY;
    int found = ORDINARY;
    for (Index l = 0; l < count; ++l)
        if (!fine[l]) {
            if (r[l] != 0 || !all_zero(at.v + l * at.by_vector, at.n, at.by_entry)) return EXTRAORDINARY;
            found = SOME_ZERO;
        }
    return found;
}

// the same from norms that are known
template <class T>
INLINE Rescaling<T> at_norms(const Lanes<T>& r, const Profile<T>& profile, const Lanes<T>& t) {
    Rescaling<T> to{r, r, r};
    const Lanes<T> safe = where(r == T(0), Lanes<T>::all(1), r);
    Lanes<T> g;
    profile.template evaluate<true>(safe - t, g, to.slope);
    to.s = g / safe;
    return to;
}

// What the gradient of g(r) v/r is made of, from <gy, v> of each vector: grad_v = first gy + second v, and g' <gy, v>/r.
// At the origin, and for vectors of one entry, it is g' gy.
template <class T>
INLINE void gradient_factors(
    const Lanes<T>& products, const Rescaling<T>& at, Index n, const Profile<T>& profile, const Lanes<T>& t,
    Lanes<T>& first, Lanes<T>& second, Lanes<T>& along) {
    const Mask<T> zero = at.r == T(0);
    const Lanes<T> none = Lanes<T>::all(0), one = Lanes<T>::all(1), inverse = one / where(zero, one, at.r);
    Lanes<T> slope = at.slope;
    if (__builtin_expect(zero.any(), 0)) slope = where(zero, profile.slope_at_zero(t), slope);
    const Lanes<T> d = where(zero, none, products * inverse);
    along = slope * d;
    first = slope;
    second = none;
    if (n == 1) return;
    first = where(zero, slope, at.s);
    second = where(zero, none, (slope - at.s) * d * inverse);
}

}  // namespace
