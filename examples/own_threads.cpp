// A model on the threads of an application's job system: slm starts none.
//  example-own_threads <model> <prompt>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iostream>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <slm/speculative.hpp>
#include <thread>
#include <vector>

/// Threads that take jobs from a queue, in place of an application's own job system.
class Jobs {
 public:
  explicit Jobs(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Jobs() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    news_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int threads() const { return static_cast<int>(threads_.size()); }

  void add(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    news_.notify_one();
  }

 private:
  void work() {
    for (std::unique_lock lock(mutex_);;) {
      news_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

/// Runs slm's loops as jobs.
class OnJobs : public slm::Executor {
 public:
  explicit OnJobs(Jobs& jobs) : jobs_(jobs) {}

  int threads() const override { return jobs_.threads() + 1; }  // the caller runs parts too

  void run(int parts, Part part) override {
    std::latch ended(parts);
    const auto job = [&ended, part](int index) {
      part(index);
      ended.count_down();
    };
    int next = 1;
    try {
      for (; next < parts; ++next) jobs_.add([job, next] { job(next); });
    } catch (const std::bad_alloc&) {  // the caller runs what the queue does not take
    }
    job(0);
    for (; next < parts; ++next) job(next);
    ended.wait();
  }

 private:
  Jobs& jobs_;
};

int main(int argc, char** argv) try {
  if (argc != 3) throw slm::Error("usage: own_threads <model> <prompt>");

  Jobs jobs(2);
  const slm::backend::Cpu device({.executor = std::make_shared<OnJobs>(jobs)});
  slm::SpeculativeDecoder decoder(slm::Lookup{}, slm::load(argv[1], device));

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  const auto tokens = tokenizer.encode(argv[2]);
  decoder.generate(tokens, {.max_new_tokens = 48, .temperature = 0}, slm::TextStream{tokenizer, tokens, std::cout});
  std::cout << '\n';
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
