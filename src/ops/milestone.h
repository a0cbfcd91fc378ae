// Waiting for a part of what a queue was given, on queues that can.
#pragma once

#include "ecphory/status.h"

namespace ecphory {

// What a queue that records is besides.
class MilestoneQueue {
 public:
  virtual ~MilestoneQueue() = default;
  // In order: a place that FinishMilestone() waits for, the last one, but not
  // for the work behind it, which may be waiting for a flag.
  virtual void SetMilestone() = 0;
  // The first failure since the last call, or since Queue::Finish().
  virtual Status FinishMilestone() = 0;
};

}  // namespace ecphory
