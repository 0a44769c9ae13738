// The kernels on memory of exactly the size they may touch, under the sanitizers: sizes around every boundary.

#include "../../src/radnet/native/kernels.cpp"

#include <cstdio>
#include <random>

template <class T>
struct Calls;
template <>
struct Calls<float> {
    static constexpr auto forward = radnet_forward_float;
    static constexpr auto backward = radnet_backward_float;
    static constexpr auto chain = radnet_chain_float;
    static constexpr auto chain_back = radnet_chain_back_float;
};
template <>
struct Calls<double> {
    static constexpr auto forward = radnet_forward_double;
    static constexpr auto backward = radnet_backward_double;
    static constexpr auto chain = radnet_chain_double;
    static constexpr auto chain_back = radnet_chain_back_double;
};

std::mt19937 chance(0);

template <class T>
std::vector<T> drawn(Index count) {
    std::normal_distribution<double> normal;
    std::vector<T> x(count);
    for (auto& value : x) value = T(normal(chance));
    x.shrink_to_fit();
    return x;
}

template <class T>
int rescalings() {
    int ran = 0;
    for (int kind = 0; kind < 9; ++kind)
        for (Index outer : {1, 3, 40})
            for (Index n : {1, 2, 15, 16, 17, 1023, 1024, 1025, 2049})
                for (Index inner : {1, 2, 511, 512, 513}) {
                    if (outer * n * inner > 300000) continue;
                    auto v = drawn<T>(outer * n * inner), gy = drawn<T>(outer * n * inner);
                    std::fill(v.begin(), v.begin() + (inner == 1 ? n : 0), T(0));  // a vector that is 0
                    std::vector<T> y(v.size()), r(outer * inner), gv(v.size()), gt(r.size());
                    const auto shifts = drawn<T>(1 + ran % 5);  // in turns, one for each of so many vectors
                    const T* turns = ran % 3 ? shifts.data() : nullptr;
                    const int threads = 1 + ran % 3, blocks = int(shifts.size());
                    const int norms = Calls<T>::forward(
                        v.data(), y.data(), ran % 2 ? r.data() : nullptr, outer, n, inner, kind, 0.5, 0.25, turns, blocks,
                        threads);
                    if (!norms) continue;  // a sum may be small by chance
                    Calls<T>::forward(
                        v.data(), y.data(), r.data(), outer, n, inner, kind, 0.5, 0.25, turns, blocks, threads);
                    Calls<T>::backward(
                        v.data(), r.data(), gy.data(), gv.data(), ran % 2 ? gt.data() : nullptr, outer, n, inner, kind,
                        0.5, 0.25, turns, blocks, threads);
                    for (T x : gv)
                        if (!std::isfinite(x)) return -1;
                    ++ran;
                }
    return ran;
}

template <class T>
int chains() {
    int ran = 0;
    for (int kind = 0; kind < 9; ++kind)
        for (Index rows : {1, 4, 5, 7, 8, 9, 15, 16, 17, 40})
            for (const auto& widths : std::vector<std::vector<Index>>{{1, 1}, {3, 4, 2}, {7, 16, 33, 5}, {2, 3, 4, 5, 6, 1}}) {
                const int L = int(widths.size()) - 1;
                std::vector<std::vector<T>> kept;
                std::vector<Index> given;
                std::vector<double> numbers;
                Index gradients = 0;
                for (int k = 0; k < L; ++k) {
                    kept.push_back(drawn<T>(widths[k] * widths[k + 1]));
                    kept.push_back(drawn<T>(widths[k + 1]));
                    const auto b = ran % 2 ? reinterpret_cast<Index>(kept.back().data()) : 0;
                    const auto W = reinterpret_cast<Index>(kept[kept.size() - 2].data());
                    given.insert(given.end(), {widths[k], widths[k + 1], W, b, k + 1 < L ? kind : -1});
                    numbers.insert(numbers.end(), {0.5, 0.1});
                    gradients += widths[k] * widths[k + 1] + widths[k + 1] + 1;
                }
                const auto x = drawn<T>(rows * widths[0]), gy = drawn<T>(rows * widths[L]);
                std::vector<T> y(gy.size()), gx(x.size()), g(gradients);
                const int threads = 1 + ran % 3;
                Calls<T>::chain(x.data(), y.data(), rows, L, given.data(), numbers.data(), threads);
                Calls<T>::chain_back(
                    x.data(), gy.data(), ran % 2 ? gx.data() : nullptr, g.data(), nullptr, rows, L, given.data(),
                    numbers.data(), threads);
                double loss = 0;
                Calls<T>::chain_back(
                    x.data(), gy.data(), nullptr, g.data(), &loss, rows, L, given.data(), numbers.data(), threads);
                ++ran;
            }
    return ran;
}

int main() {
    const int ran[] = {rescalings<float>(), rescalings<double>(), chains<float>(), chains<double>()};
    std::printf("%d %d %d %d %d\n", radnet_abi(), ran[0], ran[1], ran[2], ran[3]);
    return 0;
}
