// Work in several threads: those of torch, whose OpenMP is in the process already. Others would fight with them for the
// cores, since they spin for a while when their work is done. They do not survive a fork: in a child threads are made for
// the call.

#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>

#include "lanes.hpp"

namespace {

using Pool = void (*)(void (*)(void*), void*, unsigned, unsigned);

std::atomic<bool> forked{false};
const int notices_forks = pthread_atfork(nullptr, nullptr, [] { forked = true; });  // from when the library is loaded

Pool torchs_pool() {
    static const Pool found = reinterpret_cast<Pool>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return forked || notices_forks != 0 ? nullptr : found;
}

// work(k, begin, end) for each of `threads` parts of the items; which thread takes which part is left open
template <class Work>
void in_parallel(Index items, int threads, Work work) {
    const int many = int(std::max<Index>(1, std::min<Index>(threads, items)));
    if (many == 1) return work(0, Index(0), items);
    struct Shared {
        Work& work;
        Index items;
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

}  // namespace
