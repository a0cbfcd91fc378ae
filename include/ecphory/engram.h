// The Engram memory in C (C11, and C++): an n-gram table that stays on disk,
// for any engine. docs/engram-library.md shows a whole program.
//
// Errors. Functions return a status; ecphory_engram_last_error() says what, in
// which file, table and row. Nothing is printed, nothing exits, no C++
// exception leaves the library. A NULL handle or a NULL place for a result is
// ECPHORY_ENGRAM_INVALID_ARGUMENT.
//
// Threads. A handle of type ecphory_engram may be used by any number of threads
// at once, but for ecphory_engram_close, which comes last. A sequence belongs
// to one thread at a time; different sequences are independent.
//
// ABI. This is version 1, and the shared library's SONAME ends in it. Within it
// functions keep their meaning, numbers of enums stay, and structures that
// begin with `struct_size` grow at their end only. Set `struct_size` to the
// sizeof of the structure that you compiled with: a newer library leaves what
// you do not know alone, an older one zeroes what it does not know in results
// and refuses options that it does not know unless they are zero.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ECPHORY_ENGRAM_API __attribute__((visibility("default")))
#else
#define ECPHORY_ENGRAM_API
#endif

#define ECPHORY_ENGRAM_ABI_VERSION 1
// A table number that stands for all of them.
#define ECPHORY_ENGRAM_ALL_TABLES UINT32_MAX
// In a history: an image position or padding, which stops the look-back.
#define ECPHORY_ENGRAM_DEAD (-1)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ecphory_engram_status {
  ECPHORY_ENGRAM_OK = 0,
  ECPHORY_ENGRAM_INVALID_ARGUMENT = 1,    // the call is wrong
  ECPHORY_ENGRAM_NOT_FOUND = 2,           // a file, key or tensor is missing
  ECPHORY_ENGRAM_CORRUPT = 3,             // a file contradicts itself
  ECPHORY_ENGRAM_UNSUPPORTED = 4,         // valid, but not in this version
  ECPHORY_ENGRAM_OUT_OF_RANGE = 5,        // no such token, row or column
  ECPHORY_ENGRAM_RESOURCE_EXHAUSTED = 6,  // memory, threads, descriptors
  ECPHORY_ENGRAM_IO_ERROR = 7,            // the operating system refused
  ECPHORY_ENGRAM_CANCELLED = 8,
  ECPHORY_ENGRAM_DEVICE_ERROR = 9,
  ECPHORY_ENGRAM_INTERNAL = 10,  // the library's own bug
} ecphory_engram_status;

// How rows come from the disk.
enum {
  ECPHORY_ENGRAM_IO_AUTO = 0,      // by what is allowed, and measured
  ECPHORY_ENGRAM_IO_URING = 1,     // io_uring, O_DIRECT
  ECPHORY_ENGRAM_IO_PREAD = 2,     // a standing pool of threads
  ECPHORY_ENGRAM_IO_BUFFERED = 3,  // through the page cache
  ECPHORY_ENGRAM_IO_MMAP = 4,      // a mapping
  ECPHORY_ENGRAM_IO_RAM = 5,       // the tables copied to memory
};

// What a lookup writes for each row.
enum {
  ECPHORY_ENGRAM_F32 = 0,   // width floats, each exact in bf16
  ECPHORY_ENGRAM_BF16 = 1,  // width bf16 values
  ECPHORY_ENGRAM_RAW = 2,   // row_bytes as they are on disk, scales last
};

// How a table holds a row.
enum {
  ECPHORY_ENGRAM_CODEC_ROW264 = 0,  // e4m3 codes, then e8m0 scales per 32
  ECPHORY_ENGRAM_CODEC_RELEASED_PAIR = 1,  // the same in two places
  ECPHORY_ENGRAM_CODEC_BF16 = 2,
  ECPHORY_ENGRAM_CODEC_Q8_0 = 3,
  ECPHORY_ENGRAM_CODEC_Q4_0 = 4,
  ECPHORY_ENGRAM_CODEC_Q4_1 = 5,
};

typedef struct ecphory_engram ecphory_engram;
typedef struct ecphory_engram_sequence ecphory_engram_sequence;
// A lookup under way. 0 is none.
typedef uint64_t ecphory_engram_ticket;

// ---- library ----

// "0.1.0". Lives for ever.
ECPHORY_ENGRAM_API const char* ecphory_engram_version(void);
// The ECPHORY_ENGRAM_ABI_VERSION that the library was built with.
ECPHORY_ENGRAM_API uint32_t ecphory_engram_abi_version(void);
// "corrupt"; "unknown" for a number that is none. Lives for ever.
ECPHORY_ENGRAM_API const char* ecphory_engram_status_name(
    ecphory_engram_status status);
// What the last call of this thread that failed had to say: one line, at most
// 1023 bytes; "" before any. Valid until the thread's next failure.
ECPHORY_ENGRAM_API const char* ecphory_engram_last_error(void);

// ---- opening ----

#define ECPHORY_ENGRAM_CACHE_DEFAULT UINT64_MAX

typedef struct ecphory_engram_options {
  size_t struct_size;
  // Where the numbers and the token map come from, when not from the path with
  // the rows: a GGUF file, a released directory or a config.json.
  const char* config;
  // Raw rows in several files: the tables after the first, in layer order.
  const char* const* more_tables;
  size_t more_tables_count;
  // A token map (.npy), or a tokenizer.json to build it from, instead of the
  // configuration's own. One of them at most.
  const char* token_map;
  const char* tokenizer;
  uint32_t io_mode;      // ECPHORY_ENGRAM_IO_...
  uint32_t io_threads;   // readers beside the caller where threads read: 1..256
  uint32_t queue_depth;  // reads in flight, 1..4096
  uint32_t reserved;     // 0
  // Rows kept in memory, bookkeeping included. 0: none;
  // ECPHORY_ENGRAM_CACHE_DEFAULT: 64 MiB, or none where IO_AUTO finds that the
  // page cache holds the tables.
  uint64_t cache_bytes;
  double probe_seconds;  // IO_AUTO: the longest that measuring may take
} ecphory_engram_options;

// Defaults: automatic, 16 threads, depth 256, the default cache. Pass
// sizeof(ecphory_engram_options); no byte beyond it is written. Does nothing
// for NULL or a size that has no room for struct_size.
ECPHORY_ENGRAM_API void ecphory_engram_options_init(
    ecphory_engram_options* options, size_t struct_size);

// Opens a GGUF file with Engram keys (the rest of a model is not needed), a
// released directory, or a file of raw rows; `options` may be NULL. Reads
// headers and a few rows of each table; starts the reading threads. *engram is
// NULL after an error. Copies every string.
ECPHORY_ENGRAM_API ecphory_engram_status
ecphory_engram_open(const char* path, const ecphory_engram_options* options,
                    ecphory_engram** engram);

// Closes and sets *engram to NULL; does nothing for NULL. Lookups that were not
// waited for end here: their `out` must be valid until this returns. No other
// call may be running on the handle. Sequences stay valid.
ECPHORY_ENGRAM_API void ecphory_engram_close(ecphory_engram** engram);

// ---- facts: constant while the handle is open ----

typedef struct ecphory_engram_facts {
  size_t struct_size;
  uint32_t tables;     // one for each Engram layer, layers ascending
  uint32_t max_ngram;  // n-grams of 2..max_ngram tokens
  uint32_t heads;      // for each n-gram size
  uint32_t columns;    // rows a token reads in each table
  uint32_t width;      // values of a row
  uint32_t vocab_size;
  uint32_t compressed_vocab_size;
  int32_t pad_id;  // a compressed id
} ecphory_engram_facts;

typedef struct ecphory_engram_table {
  size_t struct_size;
  uint32_t layer;
  uint32_t codec;  // ECPHORY_ENGRAM_CODEC_...
  uint64_t rows;
  uint64_t row_bytes;  // on disk, scales included
  uint64_t offset;     // of row 0 in `file`
  uint64_t scale_offset;
  // Everything below is the handle's and valid until it is closed.
  const char* name;        // of the tensor
  const char* codec_name;  // for people
  const char* file;
  const char* scale_file;       // NULL unless CODEC_RELEASED_PAIR
  const uint64_t* primes;       // [columns], n-gram size major, head minor
  const uint64_t* offsets;      // [columns]: first row of each column
  const uint64_t* multipliers;  // [max_ngram], by look-back distance
} ecphory_engram_table;

ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_get_facts(
    const ecphory_engram* engram, ecphory_engram_facts* facts);
// OUT_OF_RANGE for a table that does not exist.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_get_table(
    const ecphory_engram* engram, uint32_t table, ecphory_engram_table* facts);
// Raw id -> compressed id, [*count]; valid until the handle is closed. NULL and
// 0 for a NULL handle. `count` may be NULL.
ECPHORY_ENGRAM_API const int32_t* ecphory_engram_token_map(
    const ecphory_engram* engram, size_t* count);

// Compressed ids of `count` tokens; ECPHORY_ENGRAM_DEAD where dead[i] is not 0.
// `dead` may be NULL: none is. OUT_OF_RANGE names a token outside the
// vocabulary.
ECPHORY_ENGRAM_API ecphory_engram_status
ecphory_engram_compress(const ecphory_engram* engram, const int32_t* tokens,
                        const uint8_t* dead, size_t count, int32_t* compressed);

// ---- sequences: token ids to row numbers ----

// A sequence at its start.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_sequence_create(
    const ecphory_engram* engram, ecphory_engram_sequence** sequence);
// A second sequence in the same state: a snapshot, or a branch.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_sequence_clone(
    const ecphory_engram_sequence* sequence, ecphory_engram_sequence** clone);
// Takes over the state of `from`, which is of the same memory.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_sequence_assign(
    ecphory_engram_sequence* sequence, const ecphory_engram_sequence* from);
// Back to the start.
ECPHORY_ENGRAM_API ecphory_engram_status
ecphory_engram_sequence_reset(ecphory_engram_sequence* sequence);
// Frees and sets *sequence to NULL; does nothing for NULL. Before or after the
// memory is closed.
ECPHORY_ENGRAM_API void ecphory_engram_sequence_free(
    ecphory_engram_sequence** sequence);

// The whole state: the last max_ngram - 1 compressed ids, newest first, dead
// ones -1; fewer near the start. *count takes their number. INVALID_ARGUMENT
// when `capacity` is too small (max_ngram - 1 is always enough).
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_sequence_get_history(
    const ecphory_engram_sequence* sequence, int32_t* ids, size_t capacity,
    size_t* count);
// OUT_OF_RANGE for ids that are none, INVALID_ARGUMENT for more than
// max_ngram - 1; the state is then as before.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_sequence_set_history(
    ecphory_engram_sequence* sequence, const int32_t* ids, size_t count);

// Rows of the sequence's next `count` tokens in every table, which follow from
// the tokens and the history alone: rows is [tables, count, columns], and
// `capacity` its size. Advances the sequence. dead[i] != 0 marks an image
// position or padding; `dead` may be NULL. On an error the sequence is as
// before. Allocates nothing up to 16 tables.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_hash(
    ecphory_engram_sequence* sequence, const int32_t* tokens,
    const uint8_t* dead, size_t count, uint64_t* rows, size_t capacity);

// ---- lookups: row numbers to values ----

// Its layout is fixed.
typedef struct ecphory_engram_request {
  uint32_t table;
  uint32_t format;       // ECPHORY_ENGRAM_F32, _BF16 or _RAW
  const uint64_t* rows;  // [count], copied
  size_t count;
  // [count] rows in the order of `rows`. Any memory that the processor can
  // write, pinned memory that a device sees too; aligned to a value's size.
  void* out;
  size_t out_bytes;  // at least count times the bytes of a row
} ecphory_engram_request;

typedef struct ecphory_engram_lookup_stats {
  size_t struct_size;
  uint64_t cache_hits;  // distinct rows that the cache had
  uint64_t rows_read;   // distinct rows that were read
  uint64_t bytes_read;
  double read_seconds;  // submit to last row
} ecphory_engram_lookup_stats;

// Starts reading and returns at once. `out` must stay valid until wait or
// cancel of the ticket returned, or the memory is closed. Rows that do not
// exist are reported by wait. *ticket is 0 after an error.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_submit(
    ecphory_engram* engram, const ecphory_engram_request* request,
    ecphory_engram_ticket* ticket);
// The same for `count` requests in one submission to the kernel; tickets is
// [count]. After an error nothing was submitted and all are 0.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_submit_batch(
    ecphory_engram* engram, const ecphory_engram_request* requests,
    size_t count, ecphory_engram_ticket* tickets);
// *ready is 1 when wait would return at once, else 0.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_ready(
    const ecphory_engram* engram, ecphory_engram_ticket ticket, int* ready);
// Returns when the lookup is done, and forgets the ticket; the thread helps to
// read, then sleeps. An error names table and row, and `out` is then
// unspecified. INVALID_ARGUMENT for a ticket that was waited for or cancelled.
// `stats` may be NULL. Every ticket takes one wait or cancel.
ECPHORY_ENGRAM_API ecphory_engram_status
ecphory_engram_wait(ecphory_engram* engram, ecphory_engram_ticket ticket,
                    ecphory_engram_lookup_stats* stats);
// Drops what is not being read yet, waits for the rest and forgets the ticket;
// `out` is unspecified. OK, and nothing, for a ticket that is forgotten.
ECPHORY_ENGRAM_API ecphory_engram_status
ecphory_engram_cancel(ecphory_engram* engram, ecphory_engram_ticket ticket);

// Decodes rows that were read as ECPHORY_ENGRAM_RAW: raw is [rows, row_bytes],
// out [rows, width] in `format`. CORRUPT names the first damaged one.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_decode(
    const ecphory_engram* engram, uint32_t table, const void* raw, size_t rows,
    uint32_t format, void* out, size_t out_bytes);

// ---- what it does ----

typedef struct ecphory_engram_io {
  size_t struct_size;
  uint32_t mode;       // ECPHORY_ENGRAM_IO_..., never _AUTO
  uint32_t direct;     // 1: the page cache is left alone
  const char* reason;  // one line for people; valid until the handle is closed
} ecphory_engram_io;

typedef struct ecphory_engram_stats {
  size_t struct_size;
  uint64_t lookups;     // tickets
  uint64_t rows;        // rows asked for
  uint64_t cache_hits;  // distinct rows that the cache had
  uint64_t rows_read;   // distinct rows that were read
  uint64_t reads;       // read requests: rows that touch share one
  uint64_t bytes_read;  // as the disk sees it: whole sectors when direct
  double read_seconds;  // sum over tickets, submit to last row
  double wait_seconds;  // time that callers spent in wait
} ecphory_engram_stats;

ECPHORY_ENGRAM_API ecphory_engram_status
ecphory_engram_get_io(const ecphory_engram* engram, ecphory_engram_io* io);
// Counters since opening or the last reset, of one table or of
// ECPHORY_ENGRAM_ALL_TABLES.
ECPHORY_ENGRAM_API ecphory_engram_status ecphory_engram_get_stats(
    const ecphory_engram* engram, uint32_t table, ecphory_engram_stats* stats);
ECPHORY_ENGRAM_API ecphory_engram_status
ecphory_engram_reset_stats(ecphory_engram* engram);

#ifdef __cplusplus
}  // extern "C"
#endif
