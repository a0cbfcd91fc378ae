// Doubly linked lists over row numbers; a row is in one list at most.
#pragma once

#include <cstdint>
#include <vector>

#include "stream.h"

namespace ecphory::study {

struct Links {
  explicit Links(size_t n) : newer(n, kNever), older(n, kNever) {}
  std::vector<uint32_t> newer, older;
};

class List {
 public:
  explicit List(Links* links) : links_(links) {}
  size_t size() const { return size_; }
  uint32_t oldest() const { return tail_; }
  uint32_t newer(uint32_t id) const { return links_->newer[id]; }

  void PushNewest(uint32_t id) {
    links_->newer[id] = kNever;
    links_->older[id] = head_;
    (head_ == kNever ? tail_ : links_->newer[head_]) = id;
    head_ = id;
    ++size_;
  }
  void Remove(uint32_t id) {
    const uint32_t newer = links_->newer[id], older = links_->older[id];
    (newer == kNever ? head_ : links_->older[newer]) = older;
    (older == kNever ? tail_ : links_->newer[older]) = newer;
    --size_;
  }
  uint32_t PopOldest() {
    const uint32_t id = tail_;
    Remove(id);
    return id;
  }
  void Renew(uint32_t id) {
    Remove(id);
    PushNewest(id);
  }

 private:
  Links* links_;
  uint32_t head_ = kNever, tail_ = kNever;
  size_t size_ = 0;
};

}  // namespace ecphory::study
