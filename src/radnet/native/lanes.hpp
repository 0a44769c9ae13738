// Numbers side by side, as many as a register holds: arithmetic, exp, sin and cos; rows of a matrix to lanes and back.

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

// What has to be known of a kind of numbers. So many `terms` of the series of exp, and `turns` of those of sin and cos, are
// as good as its last bit. pi/2 is in parts, of which all but the last times a whole number are exact up to arguments of
// `turning`.
template <class T>
struct Number;
template <>
struct Number<float> {
    using Whole = std::int32_t;
    static constexpr float low = 0x1p-48f, high = 0x1p48f;  // ordinary norms, as rescaling.ordinary_range says
    static constexpr int mantissa = 23, bias = 127, terms = 7, turns = 5;
    static constexpr float rounds = 0x1.8p23f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f, far = 80, gone = 105;
    static constexpr float quarter[] = {0x1.92p0f, 0x1.fb4p-12f, 0x1.444p-24f, 0x1.68c234p-39f}, turning = 2048;
};
template <>
struct Number<double> {
    using Whole = std::int64_t;
    static constexpr double low = 0x1p-384, high = 0x1p384;
    static constexpr int mantissa = 52, bias = 1023, terms = 13, turns = 8;
    static constexpr double rounds = 0x1.8p52, ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    static constexpr double far = 600, gone = 746, turning = 0x1p19;
    static constexpr double quarter[] = {0x1.921fb544p0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};
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

// e^-|x|, for every x
template <class T>
INLINE Lanes<T> falling(const Lanes<T>& x) {
    const Lanes<T> down = where(x < T(0), x, -x);
    const Mask<T> far = down < -Number<T>::far;
    Lanes<T> e = exponential(where(far, Lanes<T>::all(-Number<T>::far), down));
    if (__builtin_expect(far.any(), 0)) {
        const Mask<T> gone = down < -Number<T>::gone;  // there it is 0
        e = where(gone, Lanes<T>::all(0), e);
        if ((far & ~gone).any())
            for (Index l = 0; l < TILE<T>; ++l)
                if (far[l] && !gone[l]) e.set(l, std::exp(down[l]));
    }
    return e;
}

// 1 - q/(a (a + 1)) (1 - q/((a + 2)(a + 3)) (1 - ...)), written out: cos(r) for q = r^2 and a = 1, sin(r)/r for a = 2
template <class T, int a>
INLINE Lanes<T> alternating(const Lanes<T>& q) {
    if constexpr (a > 2 * Number<T>::turns)
        return Lanes<T>::all(1);
    else
        return T(1) - q * (T(1) / (a * (a + 1))) * alternating<T, a + 2>(q);
}

// sin(x) and cos(x): x = n pi/2 + r with |r| <= pi/4, the series at r, and n says which of them it is, up to its sign
template <class T>
INLINE void sine_and_cosine(const Lanes<T>& x, Lanes<T>& sine, Lanes<T>& cosine) {
    using N = Number<T>;
    const Mask<T> near = (x >= -N::turning) & (x <= N::turning);
    const Lanes<T> some = where(near, x, Lanes<T>::all(0));
    const Lanes<T> shifted = some * T(0.63661977236758134) + N::rounds;  // n in its last bits
    const Lanes<T> n = shifted - N::rounds;
    Lanes<T> r = some;
    for (T part : N::quarter) r = r - n * part;
    const Lanes<T> q = r * r;
    const Lanes<T> s = r * alternating<T, 2>(q), c = alternating<T, 1>(q);
    for (int k = 0; k < 2; ++k) {
        const Bits<T> bits = reinterpret_cast<const Bits<T>&>(shifted.p[k]);
        const Bits<T> odd = (bits & 1) == 1, turned = (bits & 2) == 2, turns = ((bits + 1) & 2) == 2;
        const Register<T> first = odd ? c.p[k] : s.p[k], second = odd ? s.p[k] : c.p[k];
        sine.p[k] = turned ? -first : first;
        cosine.p[k] = turns ? -second : second;
    }
    if (__builtin_expect((~near).any(), 0))
        for (Index l = 0; l < TILE<T>; ++l)
            if (!near[l]) sine.set(l, std::sin(x[l])), cosine.set(l, std::cos(x[l]));
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

}  // namespace
