// Work that is done beside other work, on queues that can.
#pragma once

#include "ops/device.h"

namespace ecphory {

// What such a queue is besides. While it records, work between BeginAside() and
// EndAside() comes after what is before it, and is done beside what comes after
// it, until JoinAside(), where both meet. One stretch at a time, of operators
// alone. Otherwise it is work like any other.
class AsideQueue {
 public:
  virtual ~AsideQueue() = default;
  virtual void BeginAside() = 0;
  virtual void EndAside() = 0;
  virtual void JoinAside() = 0;
};

// Calls work(), whose results are not read before JoinAside().
template <typename Work>
void DoAside(Queue& queue, const Work& work) {
  AsideQueue* const aside = dynamic_cast<AsideQueue*>(&queue);
  if (aside != nullptr) aside->BeginAside();
  work();
  if (aside != nullptr) aside->EndAside();
}
inline void JoinAside(Queue& queue) {
  AsideQueue* const aside = dynamic_cast<AsideQueue*>(&queue);
  if (aside != nullptr) aside->JoinAside();
}

}  // namespace ecphory
