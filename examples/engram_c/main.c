// The Engram memory in C, without the rest of the engine: opens a table, hashes
// tokens, reads their rows while the caller could compute, and says what it
// did.
//
//   engram_c [FILE [TOKEN...]]
#include <ecphory/engram.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMaxTokens = 64, kMaxTables = 8 };

// Everything of one run; zero before it.
typedef struct {
  ecphory_engram* engram;
  ecphory_engram_sequence* sequence;
  ecphory_engram_facts facts;
  int32_t tokens[kMaxTokens];
  size_t count;
  uint64_t* rows;  // [tables, count, columns]
  float* values;   // [tables, count, columns, width]
} run;

// Room for the rows of all tables and for their values.
static ecphory_engram_status Prepare(run* r, const char* path) {
  ecphory_engram_options options;
  ecphory_engram_options_init(&options, sizeof(options));
  options.cache_bytes = 4 << 20;
  ecphory_engram_status status =
      ecphory_engram_open(path, &options, &r->engram);
  if (status != ECPHORY_ENGRAM_OK) return status;
  r->facts.struct_size = sizeof(r->facts);
  status = ecphory_engram_get_facts(r->engram, &r->facts);
  if (status != ECPHORY_ENGRAM_OK) return status;
  if (r->facts.tables > kMaxTables) return ECPHORY_ENGRAM_UNSUPPORTED;
  const size_t places = r->count * r->facts.columns * r->facts.tables;
  r->rows = malloc(places * sizeof(*r->rows));
  r->values = malloc(places * r->facts.width * sizeof(*r->values));
  if (r->rows == NULL || r->values == NULL) {
    return ECPHORY_ENGRAM_RESOURCE_EXHAUSTED;
  }
  return ecphory_engram_sequence_create(r->engram, &r->sequence);
}

// Token ids to rows to values. All tables are asked for at once, each is joined
// when its layer needs it.
static ecphory_engram_status Read(run* r) {
  const size_t each = r->count * r->facts.columns;
  ecphory_engram_status status = ecphory_engram_hash(
      r->sequence, r->tokens, NULL, r->count, r->rows, each * r->facts.tables);
  if (status != ECPHORY_ENGRAM_OK) return status;
  ecphory_engram_request requests[kMaxTables];
  ecphory_engram_ticket tickets[kMaxTables];
  for (uint32_t i = 0; i < r->facts.tables; ++i) {
    const size_t floats = each * r->facts.width;
    requests[i] = (ecphory_engram_request){
        .table = i,
        .format = ECPHORY_ENGRAM_F32,
        .rows = r->rows + i * each,
        .count = each,
        .out = r->values + i * floats,
        .out_bytes = floats * sizeof(float),
    };
  }
  status = ecphory_engram_submit_batch(r->engram, requests, r->facts.tables,
                                       tickets);
  if (status != ECPHORY_ENGRAM_OK) return status;
  // The layers before the first Engram layer would run here.
  for (uint32_t i = 0; i < r->facts.tables; ++i) {
    const ecphory_engram_status waited =
        ecphory_engram_wait(r->engram, tickets[i], NULL);
    if (status == ECPHORY_ENGRAM_OK) status = waited;
  }
  return status;
}

static ecphory_engram_status Print(const run* r) {
  const size_t columns = r->facts.columns, width = r->facts.width;
  int32_t ids[kMaxTokens];
  ecphory_engram_status status =
      ecphory_engram_compress(r->engram, r->tokens, NULL, r->count, ids);
  if (status != ECPHORY_ENGRAM_OK) return status;
  for (uint32_t table = 0; table < r->facts.tables; ++table) {
    for (size_t i = 0; i < r->count; ++i) {
      const size_t at = (table * r->count + i) * columns;
      printf("table %u token %d id %d rows", table, r->tokens[i], ids[i]);
      for (size_t c = 0; c < columns; ++c) {
        printf(" %llu", (unsigned long long)r->rows[at + c]);
      }
      printf(" values %.9g %.9g\n", r->values[at * width],
             r->values[at * width + 1]);
    }
  }
  ecphory_engram_io io = {.struct_size = sizeof(io)};
  ecphory_engram_stats stats = {.struct_size = sizeof(stats)};
  status = ecphory_engram_get_io(r->engram, &io);
  if (status != ECPHORY_ENGRAM_OK) return status;
  status =
      ecphory_engram_get_stats(r->engram, ECPHORY_ENGRAM_ALL_TABLES, &stats);
  if (status != ECPHORY_ENGRAM_OK) return status;
  printf("io: %s\n", io.reason);
  printf("%llu rows asked for, %llu read, %llu from the cache, %llu bytes\n",
         (unsigned long long)stats.rows, (unsigned long long)stats.rows_read,
         (unsigned long long)stats.cache_hits,
         (unsigned long long)stats.bytes_read);
  return ECPHORY_ENGRAM_OK;
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "models/ecphory-mini.gguf";
  run r = {.tokens = {5, 6, 7, 5, 6, 7}, .count = 6};
  if (argc > 2) r.count = 0;
  for (int i = 2; i < argc && r.count < kMaxTokens; ++i) {
    r.tokens[r.count++] = (int32_t)strtol(argv[i], NULL, 10);
  }
  ecphory_engram_status status = Prepare(&r, path);
  if (status == ECPHORY_ENGRAM_OK) status = Read(&r);
  if (status == ECPHORY_ENGRAM_OK) status = Print(&r);
  if (status != ECPHORY_ENGRAM_OK) {
    fprintf(stderr, "%s: %s\n", ecphory_engram_status_name(status),
            ecphory_engram_last_error());
  }
  ecphory_engram_sequence_free(&r.sequence);
  ecphory_engram_close(&r.engram);
  free(r.values);
  free(r.rows);
  return status == ECPHORY_ENGRAM_OK ? 0 : 1;
}
