#include "engram/store.h"

#include <new>
#include <utility>

#include "base/check.h"
#include "engram/store_core.h"
#include "engram/store_internal.h"

namespace ecphory::engram {

namespace {

Result<std::vector<TableReader>> OpenTables(std::vector<TableSource> sources) {
  std::vector<TableReader> tables;
  for (TableSource& source : sources) {
    ECPHORY_ASSIGN_OR_RETURN(TableReader table,
                             TableReader::Open(std::move(source)));
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace

struct Store::Impl {
  Impl(std::vector<TableReader> tables, StoreIo io)
      : core(std::move(tables), std::move(io)) {}
  StoreCore core;
};

Result<std::unique_ptr<Store>> Store::Open(std::vector<TableSource> sources,
                                           const StoreOptions& options) try {
  ECPHORY_ASSIGN_OR_RETURN(std::vector<TableReader> tables,
                           OpenTables(std::move(sources)));
  ECPHORY_ASSIGN_OR_RETURN(StoreIo io, MakeStoreIo(tables, options));
  return StoreAccess::Start(std::move(tables), std::move(io));
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory to open the Engram tables");
}

Result<std::unique_ptr<Store>> StoreAccess::OpenWithQueue(
    std::vector<TableSource> sources, const QueueMaker& make_queue,
    uint64_t cache_bytes) {
  ECPHORY_ASSIGN_OR_RETURN(std::vector<TableReader> tables,
                           OpenTables(std::move(sources)));
  ECPHORY_ASSIGN_OR_RETURN(auto queue, make_queue(FilesOf(tables)));
  ECPHORY_ASSIGN_OR_RETURN(StoreIo io,
                           MakeStoreIo(tables, std::move(queue), cache_bytes));
  return Start(std::move(tables), std::move(io));
}

Result<std::unique_ptr<Store>> StoreAccess::Start(
    std::vector<TableReader> tables, StoreIo io) {
  auto impl = std::make_unique<Store::Impl>(std::move(tables), std::move(io));
  ECPHORY_RETURN_IF_ERROR(impl->core.Start());
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

size_t Store::tables() const { return impl_->core.tables().size(); }

const TableSource& Store::table(size_t index) const {
  return impl_->core.tables()[index].source();
}

void Store::Submit(std::span<const LookupRequest> requests,
                   std::span<Ticket> tickets, ThreadPool* pool) {
  impl_->core.Submit(requests, tickets, pool);
}

Ticket Store::Submit(const LookupRequest& request) {
  Ticket ticket = 0;
  impl_->core.Submit({&request, 1}, {&ticket, 1}, nullptr);
  return ticket;
}

bool Store::Ready(Ticket ticket) const { return impl_->core.Ready(ticket); }

Status Store::Wait(Ticket ticket, LookupStats* stats) {
  return impl_->core.Wait(ticket, stats);
}

void Store::Cancel(Ticket ticket) { impl_->core.Cancel(ticket); }

const IoReport& Store::io() const { return impl_->core.report(); }

StoreStats Store::stats() const { return impl_->core.Stats(tables()); }

StoreStats Store::table_stats(size_t index) const {
  ECPHORY_CHECK(index < tables());
  return impl_->core.Stats(index);
}

double Store::LatencyQuantile(size_t index, double q) const {
  ECPHORY_CHECK(index < tables());
  return impl_->core.LatencyQuantile(index, q);
}

void Store::ResetStats() { impl_->core.ResetStats(); }

}  // namespace ecphory::engram
