// Reads memory as fast as threads can: the floor under a decode step, which reads every weight once.
//
// extern "C" read_memory(bytes, num_bytes, num_threads, num_passes, seconds): each pass reads all bytes once, each thread
// an equal part of them. Returns a digest, so that the reading cannot be left out.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
typedef std::uint64_t Words __attribute__((vector_size(64)));  // a cache line
constexpr std::size_t kLinesPerTurn = 4;
constexpr std::size_t kPrefetchLines = 32;

std::uint64_t read(const Words* begin, const Words* end) {
  Words sums[kLinesPerTurn] = {};
  for (const Words* line = begin; line + kLinesPerTurn <= end; line += kLinesPerTurn) {
    for (std::size_t k = 0; k < kLinesPerTurn; ++k) {
      __builtin_prefetch(line + kPrefetchLines + k);
      sums[k] ^= line[k];
    }
  }
  Words all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
  std::uint64_t digest = 0;
  for (int i = 0; i < 8; ++i) digest ^= all[i];
  return digest;
}

}  // namespace

extern "C" std::uint64_t read_memory(const void* bytes, std::size_t num_bytes, int num_threads, int num_passes,
                                     double* seconds) {
  const Words* lines = static_cast<const Words*>(bytes);
  const std::size_t num_lines = num_bytes / sizeof(Words);
  std::atomic<int> passes_begun{0}, parts_done{0};
  std::atomic<std::uint64_t> digest{0};
  auto part = [&](int thread) {
    digest ^= read(lines + num_lines * thread / num_threads, lines + num_lines * (thread + 1) / num_threads);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < num_threads; ++thread) {
    others.emplace_back([&, thread] {
      for (int pass = 0; pass < num_passes; ++pass) {
        while (passes_begun.load() <= pass) {}
        part(thread);
        ++parts_done;
      }
    });
  }
  for (int pass = 0; pass < num_passes; ++pass) {
    const auto began = Clock::now();
    ++passes_begun;
    part(0);
    while (parts_done.load() < (pass + 1) * (num_threads - 1)) {}
    seconds[pass] = std::chrono::duration<double>(Clock::now() - began).count();
  }
  for (auto& thread : others) thread.join();
  return digest;
}
