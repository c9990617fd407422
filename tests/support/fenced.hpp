// Memory that ends at an inaccessible page.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>

namespace slm::testing {

/// `size` bytes before a page that faults when read or written.
class Fenced {
 public:
  explicit Fenced(std::size_t size) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    length_ = (size + page - 1) / page * page + page;
    base_ = static_cast<std::byte*>(mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(base_ != MAP_FAILED);
    REQUIRE(mprotect(base_ + length_ - page, page, PROT_NONE) == 0);
    data_ = base_ + length_ - page - size;
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { munmap(base_, length_); }

  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  std::byte* base_;
  std::byte* data_;
  std::size_t length_;
};

}  // namespace slm::testing
