// The threads of one decoder: they run one job together and meet at barriers in it.
//
// Who waits spins briefly and then sleeps: on cores that others use too, spinning keeps those from working who are waited
// for. So each thread spins only as long as that has paid lately.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace kakeya {

class Threads {
 public:
  // Throws std::system_error where the system gives no more threads.
  explicit Threads(int num) : num_(num), shares_(num) {
    try {
      for (int thread = 1; thread < num; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
    } catch (...) {
      end();
      throw;
    }
  }

  ~Threads() { end(); }

  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int num() const { return num_; }

  // Runs job(thread) on every thread, the caller's being 0, and waits for all.
  template <class Job>
  void run(const Job& job) {
    job_ = [](const void* context, int thread) { (*static_cast<const Job*>(context))(thread); };
    context_ = &job;
    jobs_.fetch_add(1, std::memory_order_release);
    jobs_.notify_all();
    job(0);
    meet();
  }

  // Inside a job: work(first, last) for parts of 0 .. num - 1; then all meet. Each thread has a run of its own, which
  // memory is read fastest in; who has done its own helps the others.
  template <class Work>
  void share(int thread, int64_t num, int64_t part, const Work& work) {
    for (int i = 0; i < num_; ++i) {
      const int64_t owner = (thread + i) % num_, begin = owner * num / num_, end = (owner + 1) * num / num_;
      for (int64_t first; (first = begin + shares_[owner].next.fetch_add(part, std::memory_order_relaxed)) < end;)
        work(first, first + part < end ? first + part : end);
    }
    meet();
  }

  // Inside a job: nobody goes on before all have come.
  void meet() {
    const uint32_t meeting = meetings_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < static_cast<uint32_t>(num_)) {
      const bool has_paid = wait_while(meetings_, meeting, spin_.load(std::memory_order_relaxed));
      learn(has_paid);
      return;
    }
    arrived_.store(0, std::memory_order_relaxed);
    for (Share& share : shares_) share.next.store(0, std::memory_order_relaxed);
    meetings_.fetch_add(1, std::memory_order_release);
    meetings_.notify_all();
  }

 private:
  void end() {
    job_ = nullptr;
    jobs_.fetch_add(1, std::memory_order_release);
    jobs_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void serve(int thread) {
    auto spin = kLongestSpin;
    for (uint32_t seen = 0;; ++seen) {
      const auto started = std::chrono::steady_clock::now();
      wait_while(jobs_, seen, spin);
      // Of a step's two jobs the second follows soon; after the last step of a generation none may come for hours.
      spin = std::chrono::steady_clock::now() - started < kBetweenJobs ? kBetweenJobs : kShortestSpin;
      if (job_ == nullptr) return;
      job_(context_, thread);
      meet();
    }
  }

  // Whether spinning for so long was enough.
  static bool wait_while(const std::atomic<uint32_t>& number, uint32_t old, std::chrono::microseconds spin) {
    const auto started = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < 16; ++i) {
        if (number.load(std::memory_order_acquire) != old) return true;
        pause();
      }
    } while (std::chrono::steady_clock::now() - started < spin);
    while (number.load(std::memory_order_acquire) == old) number.wait(old, std::memory_order_acquire);
    return false;
  }

  void learn(bool has_paid) {
    const auto longer = spin_.load(std::memory_order_relaxed) + kShortestSpin;
    spin_.store(!has_paid ? kShortestSpin : longer < kLongestSpin ? longer : kLongestSpin, std::memory_order_relaxed);
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // Longer than parts of a layer differ, shorter than a time slice; and what sleeping costs anyway.
  static constexpr std::chrono::microseconds kLongestSpin{50}, kShortestSpin{2}, kBetweenJobs{200};

  const int num_;
  void (*job_)(const void*, int) = nullptr;
  const void* context_ = nullptr;
  std::atomic<std::chrono::microseconds> spin_{kLongestSpin};
  alignas(64) std::atomic<uint32_t> jobs_{0};
  alignas(64) std::atomic<uint32_t> meetings_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};

  struct alignas(64) Share {
    std::atomic<int64_t> next{0};  // of the owner's run, from its beginning
  };
  std::vector<Share> shares_;
  std::vector<std::thread> threads_;  // last: they use all of it
};

}  // namespace kakeya
