// Numbers side by side, as many as a register holds, and what all files share. Profiles of norms, in lanes.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(RADNET_ONE_CPU)
#define FOR_EACH_CPU __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define FOR_EACH_CPU
#endif
#define INLINE inline __attribute__((always_inline))

namespace {

using Index = std::int64_t;

// how the norms were: what every function says, see kernels.cpp
enum Norms : int { EXTRAORDINARY = 0, ORDINARY = 1, SOME_ZERO = 2 };
enum Kind : int { NOTHING = -1, IDENTITY = 0, STEP_RELU = 1, SQUASH = 2, SHIFTED_RELU = 3, SIGMOID = 4 };

// what has to be known of a kind of numbers; `terms` of the series of exp are as good as its last bit
template <class T>
struct Number;
template <>
struct Number<float> {
    using Whole = std::int32_t;
    static constexpr float low = 0x1p-48f, high = 0x1p48f;  // ordinary norms, as rescaling.ordinary_range says
    static constexpr int mantissa = 23, bias = 127, terms = 7;
    static constexpr float rounds = 0x1.8p23f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f, far = 80;
};
template <>
struct Number<double> {
    using Whole = std::int64_t;
    static constexpr double low = 0x1p-384, high = 0x1p384;
    static constexpr int mantissa = 52, bias = 1023, terms = 13;
    static constexpr double rounds = 0x1.8p52, ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45, far = 600;
};

// --- lanes: two registers of 32 bytes, so that one is worked on while the other waits

template <class T>
constexpr Index TILE = 64 / sizeof(T);

template <class T>
using Register [[gnu::vector_size(32), gnu::may_alias]] = T;
template <class T>
using Bits [[gnu::vector_size(32), gnu::may_alias]] = typename Number<T>::Whole;

template <class T>
struct Mask {
    Bits<T> p[2];

    INLINE Mask operator&(const Mask& o) const { return {{p[0] & o.p[0], p[1] & o.p[1]}}; }
    INLINE Mask operator~() const { return {{~p[0], ~p[1]}}; }
    INLINE bool operator[](Index l) const { return p[l / (TILE<T> / 2)][l % (TILE<T> / 2)] != 0; }
    INLINE bool any() const {
        const Bits<T> both = p[0] | p[1];
        std::uint64_t parts[4];
        std::memcpy(parts, &both, sizeof parts);
        return (parts[0] | parts[1] | parts[2] | parts[3]) != 0;
    }
};

template <class T>
struct alignas(64) Lanes {
    Register<T> p[2];

    static INLINE Lanes all(T x) { return {{Register<T>{} + x, Register<T>{} + x}}; }
    INLINE T operator[](Index l) const { return reinterpret_cast<const T*>(this)[l]; }
    INLINE void set(Index l, T x) { reinterpret_cast<T*>(this)[l] = x; }

#define RADNET_BINARY(OP)                                                                                            \
    friend INLINE Lanes operator OP(const Lanes& x, const Lanes& y) {                                                \
        return {{x.p[0] OP y.p[0], x.p[1] OP y.p[1]}};                                                               \
    }                                                                                                                \
    friend INLINE Lanes operator OP(const Lanes& x, T y) { return {{x.p[0] OP y, x.p[1] OP y}}; }                    \
    friend INLINE Lanes operator OP(T x, const Lanes& y) { return {{x OP y.p[0], x OP y.p[1]}}; }
    RADNET_BINARY(+)
    RADNET_BINARY(-)
    RADNET_BINARY(*)
    RADNET_BINARY(/)
#undef RADNET_BINARY
    INLINE Lanes operator-() const { return {{-p[0], -p[1]}}; }
    INLINE void operator+=(const Lanes& o) { p[0] += o.p[0], p[1] += o.p[1]; }
    INLINE void operator-=(const Lanes& o) { p[0] -= o.p[0], p[1] -= o.p[1]; }
#define RADNET_COMPARE(OP) \
    INLINE Mask<T> operator OP(T y) const { return {{p[0] OP y, p[1] OP y}}; }
    RADNET_COMPARE(>=)
    RADNET_COMPARE(<=)
    RADNET_COMPARE(<)
    RADNET_COMPARE(>)
    RADNET_COMPARE(==)
#undef RADNET_COMPARE
};

template <class T>
INLINE Lanes<T> where(const Mask<T>& m, const Lanes<T>& x, const Lanes<T>& y) {
    return {{m.p[0] ? x.p[0] : y.p[0], m.p[1] ? x.p[1] : y.p[1]}};
}

template <class T>
INLINE Lanes<T> load(const T* from) {
    Lanes<T> x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

template <class T>
INLINE void store(T* to, const Lanes<T>& x) {
    std::memcpy(to, &x, sizeof x);
}

template <class T>
INLINE Lanes<T> square_root(const Lanes<T>& x) {
    Lanes<T> found;
    const T* from = reinterpret_cast<const T*>(&x);
    T* to = reinterpret_cast<T*>(&found);
    for (Index l = 0; l < TILE<T>; ++l) to[l] = std::sqrt(from[l]);
    return found;
}

// 1 + r/1 (1 + r/2 (1 + ...)), written out
template <class T, int k>
INLINE Lanes<T> series(const Lanes<T>& r) {
    if constexpr (k > Number<T>::terms)
        return Lanes<T>::all(1);
    else
        return T(1) + r * (T(1) / k) * series<T, k + 1>(r);
}

// e^x for -far <= x <= 0: x = n ln 2 + r with |r| <= ln(2)/2, the series of e^r, and n into the exponent
template <class T>
INLINE Lanes<T> exponential(const Lanes<T>& x) {
    using N = Number<T>;
    const Lanes<T> shifted = x * T(1.4426950408889634) + N::rounds;  // n in its last bits
    const Lanes<T> n = shifted - N::rounds;
    const Lanes<T> r = (x - n * N::ln2_high) - n * N::ln2_low;
    Lanes<T> power;
    for (int k = 0; k < 2; ++k) {
        const Bits<T> bits = (reinterpret_cast<const Bits<T>&>(shifted.p[k]) + N::bias) << N::mantissa;
        power.p[k] = reinterpret_cast<const Register<T>&>(bits);
    }
    return series<T, 1>(r) * power;
}

template <class T>
INLINE Lanes<T> lanewise_dot(const Lanes<T>* a, const Lanes<T>* b, Index n) {
    Lanes<T> sum = Lanes<T>::all(0);
    for (Index i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

template <class T>
INLINE void scaled(Lanes<T>* to, const Lanes<T>* v, Index n, Lanes<T> s) {
    for (Index i = 0; i < n; ++i) to[i] = s * v[i];
}

// rows of a matrix to lanes and back; the last tile repeats its last row, which nobody reads
template <class T>
INLINE void to_lanes(Lanes<T>* to, const T* from, Index n, Index rows) {
    T* out = reinterpret_cast<T*>(to);
    for (Index l = 0; l < TILE<T>; ++l) {
        const T* row = from + std::min(l, rows - 1) * n;
        for (Index i = 0; i < n; ++i) out[i * TILE<T> + l] = row[i];
    }
}

template <class T>
INLINE void from_lanes(T* to, const Lanes<T>* from, Index n, Index rows) {
    const T* in = reinterpret_cast<const T*>(from);
    for (Index l = 0; l < rows; ++l)
        for (Index i = 0; i < n; ++i) to[l * n + i] = in[i * TILE<T> + l];
}

// memory for lanes, which have to be aligned; zeros at first, and null if there is none
template <class T>
class Memory {
  public:
    explicit Memory(Index lanes)
        : data_(static_cast<T*>(::operator new(
              std::size_t(lanes) * sizeof(Lanes<T>), std::align_val_t(sizeof(Lanes<T>)), std::nothrow))) {
        if (data_) std::memset(data_, 0, std::size_t(lanes) * sizeof(Lanes<T>));
    }
    ~Memory() { ::operator delete(data_, std::align_val_t(sizeof(Lanes<T>))); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Lanes<T>* get() const { return reinterpret_cast<Lanes<T>*>(data_); }

  private:
    T* data_;
};

// --- profiles: g(r) = h(r - t) and its derivative

template <class T>
struct Profile {
    int kind;
    T b, t;  // of the shifted ReLU; the shift

    bool does_nothing() const { return kind == NOTHING; }

    // g at norms, and g' with it where that is asked for
    template <bool with_slope>
    INLINE void evaluate(const Lanes<T>& r, Lanes<T>& g, Lanes<T>& slope) const {
        const Lanes<T> x = r - t, none = Lanes<T>::all(0), one = Lanes<T>::all(1);
        switch (kind) {
            case STEP_RELU:
                g = where(x >= T(1), x, none);
                if (with_slope) slope = where(x >= T(1), one, none);
                return;
            case SQUASH: {
                const T most = std::sqrt(std::numeric_limits<T>::max()) / 2;
                const Lanes<T> up = where(x > most, Lanes<T>::all(most), x), c = where(up < -most, Lanes<T>::all(-most), up);
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
                const Lanes<T> e = falling(x), share = one / (e + T(1));
                g = where(x >= T(0), one, e) * share;
                if (with_slope) slope = e * share * share;
                return;
            }
            default:
                g = x;
                if (with_slope) slope = one;
        }
    }

    // the gradient at v = 0: g'(0) if g(0) = 0, else 0
    T slope_at_zero() const {
        Lanes<T> g, slope;
        evaluate<true>(Lanes<T>::all(0), g, slope);
        return g[0] == 0 && std::isfinite(slope[0]) ? slope[0] : T(0);
    }

  private:
    INLINE static Lanes<T> falling(const Lanes<T>& x) {  // e^-|x|
        const Lanes<T> down = where(x < T(0), x, -x);
        const Mask<T> far = down < -Number<T>::far;
        Lanes<T> e = exponential(where(far, Lanes<T>::all(-Number<T>::far), down));
        if (__builtin_expect(far.any(), 0))
            for (Index l = 0; l < TILE<T>; ++l)
                if (far[l]) e.set(l, std::exp(down[l]));
        return e;
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

// From squares of norms (of the first `count` lanes); s is 0 where a vector is exactly 0. Entry i of vector l is at
// v[i * by_entry + l * by_vector].
template <bool with_slope, class T>
INLINE int factors(
    const Lanes<T>& squares, Index count, const Profile<T>& profile, const T* v, Index n, Index by_entry, Index by_vector,
    Rescaling<T>& to) {
    const Lanes<T> r = square_root(squares);
    const Mask<T> fine = (r >= Number<T>::low) & (r <= Number<T>::high);
    const Lanes<T> safe = where(fine, r, Lanes<T>::all(1));
    Lanes<T> g;
    profile.template evaluate<with_slope>(safe, g, to.slope);
    to.r = r;
    to.s = where(fine, g / safe, Lanes<T>::all(0));
    if (__builtin_expect(!(~fine).any(), 1)) return ORDINARY;
    int found = ORDINARY;
    for (Index l = 0; l < count; ++l)
        if (!fine[l]) {
            if (r[l] != 0 || !all_zero(v + l * by_vector, n, by_entry)) return EXTRAORDINARY;
            found = SOME_ZERO;
        }
    return found;
}

// the same from norms that are known
template <class T>
INLINE Rescaling<T> at_norms(const Lanes<T>& r, const Profile<T>& profile) {
    Rescaling<T> to{r, r, r};
    const Lanes<T> safe = where(r == T(0), Lanes<T>::all(1), r);
    Lanes<T> g;
    profile.template evaluate<true>(safe, g, to.slope);
    to.s = g / safe;
    return to;
}

// What the gradient of g(r) v/r is made of, from <gy, v> of each vector: grad_v = first gy + second v, and g' <gy, v>/r.
// At the origin, and for vectors of one entry, it is g' gy.
template <class T>
INLINE void gradient_factors(
    const Lanes<T>& products, const Rescaling<T>& at, Index n, T at_zero, Lanes<T>& first, Lanes<T>& second,
    Lanes<T>& along) {
    const Mask<T> zero = at.r == T(0);
    const Lanes<T> none = Lanes<T>::all(0), one = Lanes<T>::all(1), inverse = one / where(zero, one, at.r);
    const Lanes<T> slope = where(zero, Lanes<T>::all(at_zero), at.slope), d = where(zero, none, products * inverse);
    along = slope * d;
    first = slope;
    second = none;
    if (n == 1) return;
    first = where(zero, slope, at.s);
    second = (slope - at.s) * d * inverse;
}

}  // namespace
