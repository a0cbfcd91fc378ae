#include "io/make_queue.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "io/page_cache_queue.h"
#include "io/pool_queue.h"
#include "io/queue_file.h"
#include "io/uring_queue.h"

namespace ecphory {

namespace {

using Files = std::span<const std::shared_ptr<const TableFile>>;

void AddSentence(const std::string& sentence, std::string* text) {
  if (!text->empty()) *text += "; ";
  *text += sentence;
}

bool AllOnDisk(Files files) {
  for (const auto& file : files) {
    if (file->buffered() < 0) return false;
  }
  return true;
}

std::vector<QueueFile> Choose(Files files, bool want_direct, MadeQueue* made) {
  std::vector<QueueFile> chosen;
  made->direct = want_direct;
  for (const auto& file : files) {
    const bool direct = want_direct && file->direct() >= 0;
    chosen.push_back({file, direct});
    if (direct == want_direct) continue;
    // One sentence: tables of one model mostly share a file system.
    if (made->direct && file->buffered() >= 0) {
      AddSentence(file->direct_refusal() + ": read through the page cache",
                  &made->denied);
    }
    made->direct = false;
  }
  return chosen;
}

}  // namespace

Result<MadeQueue> MakeQueue(IoMode mode, Files files,
                            const QueueOptions& options) {
  ECPHORY_CHECK(mode == IoMode::kUring || mode == IoMode::kPread ||
                mode == IoMode::kBuffered);
  MadeQueue made;
  made.mode = mode;
  const std::vector<QueueFile> chosen =
      Choose(files, mode != IoMode::kBuffered, &made);
  if (mode != IoMode::kPread && AllOnDisk(files)) {
    auto queue = MakeUringQueue(chosen, {.depth = options.depth});
    if (queue.ok()) {
      made.queue = std::move(queue).value();
    } else {
      AddSentence(queue.status().message() + ": read by threads instead",
                  &made.denied);
    }
  }
  if (made.queue == nullptr) {
    if (mode == IoMode::kUring && made.denied.empty()) {
      made.denied = "the file lies in memory: read by threads instead";
    }
    if (mode == IoMode::kUring) made.mode = IoMode::kPread;
    ECPHORY_ASSIGN_OR_RETURN(
        made.queue,
        MakePoolQueue(chosen, {.depth = options.depth,
                               .threads = options.threads,
                               .hits_at_once = mode == IoMode::kBuffered}));
  }
  if (mode == IoMode::kBuffered) {
    made.queue = MakePageCacheQueue(chosen, std::move(made.queue));
  }
  return made;
}

}  // namespace ecphory
