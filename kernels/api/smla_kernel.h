/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel door: the one C interface through which the harness meets every sparse MLA kernel, its own and yours.
 *
 * A shared library exports   const smla_library* smla_get_library(void);   and is loaded with `smla check --plugin FILE.so`.
 * No exception may cross the door. Every struct that crosses it starts with its size in bytes: a harness never reads beyond the size a plug-in
 * gives, and a plug-in must not read beyond the size the harness gives. Symbols and conventions are those of cases/README.md (the operator). */
#ifndef SMLA_KERNEL_H
#define SMLA_KERNEL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define SMLA_ABI_VERSION 1u

enum { SMLA_PASS_DECODE = 0, SMLA_PASS_PREFILL = 1 };
enum { SMLA_BF16 = 0, SMLA_FP16 = 1 }; /* q_dtype, rope_dtype; out has q's type */
enum { SMLA_KV_BF16 = 0, SMLA_KV_FP16 = 1, SMLA_KV_FP8_656 = 2, SMLA_KV_FP8_584 = 3, SMLA_KV_FP8_576 = 4 };
enum { SMLA_DEVICE_CPU = 0, SMLA_DEVICE_CUDA = 1 };
/* smla_problem.flags */
enum {
  SMLA_FLAG_DENSE_SET = 1,       /* the valid indices of row (r, j) are exactly the positions [0, seq_lens[r] - s_q + j]: a dense kernel may answer */
  SMLA_FLAG_TAIL_PADDED = 2,     /* in every row the valid entries come first: invalid ones only behind them */
  SMLA_FLAG_DUPLICATES = 4,      /* some row names a slot more than once */
  SMLA_FLAG_TABLE_PER_QUERY = 8, /* block_table has one row per query (T rows), not one per request (b rows); seq_lens stays [b] */
  SMLA_FLAG_SCALES_POW2 = 16,    /* fp8_656: every scale is a power of two */
  SMLA_FLAG_OUT_OF_RANGE = 32    /* invalid entries other than -1 occur. Bit 64: sink is given; bit 128: topk_length is given */
};

/* The shape of one call. Strides in bytes; the innermost dimension is always dense. T = b * s_q. */
typedef struct smla_problem {
  uint32_t abi_version, struct_size;
  int32_t pass_kind, b, s_q, h_q, s_kv, topk, d_qk, d_v, page_size, num_pages;
  int32_t max_pages; /* columns of block_table: may exceed what any request needs */
  int32_t pad0;
  int64_t num_slots;                /* num_pages * page_size; a valid slot is in [0, num_slots) */
  int64_t q_stride_bytes[3];        /* b, s_q, h_q of q [b][s_q][h_q][d_qk] */
  int64_t page_stride_bytes;        /* slot s stands at (s / page_size) * page_stride_bytes + (s % page_size) * row bytes */
  int64_t indices_stride_bytes[2];  /* b, s_q of indices [b][s_q][topk] */
  int64_t block_table_stride_bytes; /* between rows of block_table */
  int64_t out_stride_bytes[3];      /* b, s_q, h_q of out [b][s_q][h_q][d_v] */
  int64_t lse_stride_bytes[2];      /* b, s_q of lse [b][s_q][h_q] */
  int32_t q_dtype, kv_format, rope_dtype, flags;
  int32_t num_splits;                /* 0 = the kernel's own choice; otherwise exactly so many (empty splits allowed) */
  int32_t threads;                   /* CPU kernels: at most so many threads */
  float sm_scale;                    /* multiplies q.k before exp; not pre-multiplied by log2 e */
  int32_t device_ordinal, device_cc; /* cc: 90 for sm_90, 120 for sm_120, 0 on the CPU */
  int32_t sm_count, pad1;
  int64_t smem_optin_bytes, l2_bytes;
} smla_problem;

typedef struct smla_buffers {
  uint32_t struct_size, pad0;
  const void* q;
  const void* kv;
  const int32_t* indices;     /* [b][s_q][topk], physical slots; outside [0, num_slots) = no key */
  const int32_t* topk_length; /* [b][s_q] dense; NULL = topk for every row */
  const int32_t* block_table; /* [b or T][max_pages] physical pages; garbage beyond a request's length */
  const int32_t* seq_lens;    /* [b] */
  const float* sink;          /* [h_q]; NULL = none */
  void* out;                  /* [b][s_q][h_q][d_v], q's type; every element is to be written */
  void* lse;                  /* [b][s_q][h_q], contract's lse_dtype in 4-byte (f32) or 2-byte (bf16) elements; every element is to be written */
} smla_buffers;

/* What a kernel claims of itself, and what the harness checks (cases/README.md, "contract"). 0 in every field = the reference declaration. */
enum { SMLA_INVALID_ANY_OUTSIDE = 0, SMLA_INVALID_MINUS_ONE = 1, SMLA_INVALID_NEGATIVE = 2 };
enum { SMLA_PADDING_ANYWHERE = 0, SMLA_PADDING_TAIL_ONLY = 1 };
enum { SMLA_LSE_F32 = 0, SMLA_LSE_BF16 = 1, SMLA_LSE_NONE = 2 };
enum { SMLA_LSE_BASE_E = 0, SMLA_LSE_BASE_2 = 1 };
enum { SMLA_EMPTY_NEG_INF = 0, SMLA_EMPTY_POS_INF = 1, SMLA_EMPTY_LARGE_NEGATIVE = 2 }; /* last: finite and <= -1e20 */
enum { SMLA_DUPLICATES_COUNTED = 0, SMLA_DUPLICATES_UNDEFINED = 1 };
enum { SMLA_TYPE_EXACT = 0, SMLA_TYPE_FP32 = 1, SMLA_TYPE_FP16 = 2, SMLA_TYPE_BF16 = 3, SMLA_TYPE_E4M3 = 4, SMLA_TYPE_Q = 5 }; /* Q: q's type */
enum { SMLA_ACC_FP32 = 0, SMLA_ACC_FP22 = 1 };
enum { SMLA_ROW_SUM_EXACT = 0, SMLA_ROW_SUM_ROUNDED = 1 };
enum { SMLA_P_MAX_ONE = 0, SMLA_P_MAX_ANY = 1 };
typedef struct smla_contract {
  uint32_t struct_size;
  int32_t invalid_index, padding, lse_dtype, lse_base, empty_lse, sink_in_lse, duplicates;
  int32_t q_round, k_round, v_round; /* SMLA_TYPE_*: what each operand is rounded to beyond its stored value; EXACT = used as stored */
  int32_t p_round;                   /* what the softmax weight is rounded to before P V; 0 = q's type */
  float p_scale;                     /* e4m3 P is multiplied by this before rounding; 0 = 1 */
  int32_t acc, row_sum, p_max;
  int32_t part;            /* type of split partials; EXACT or FP32 = fp32 */
  int32_t deterministic;   /* run to run, bitwise */
  int32_t batch_invariant; /* the same row in another batch, bitwise */
  int32_t scale_exact;     /* q * 2^k with sm_scale * 2^-k, bitwise */
} smla_contract;

/* A kernel. `self` is the kernel's own struct, so that one function may serve several kernels. `stream` is a cudaStream_t, NULL on the CPU.
 * The workspace is workspace_bytes(problem) bytes, 256-byte aligned, and DIRTY at every call. */
typedef struct smla_kernel {
  uint32_t struct_size;
  int32_t device;   /* SMLA_DEVICE_* */
  const char* name; /* [a-z0-9_.+-], unique */
  const char* description;
  const void* user; /* the kernel's own */
  /* The contract for this problem (precision may depend on the format). Returns 0. NULL = every field 0. */
  int (*contract)(const struct smla_kernel* self, const smla_problem* problem, smla_contract* out);
  /* 1 = supported; 0 = declined, with a reason of at most reason_bytes characters, NUL included. Pure; also asked for devices that are not here. */
  int (*supports)(const struct smla_kernel* self, const smla_problem* problem, char* reason, uint64_t reason_bytes);
  int64_t (*workspace_bytes)(const struct smla_kernel* self, const smla_problem* problem);
  /* Optional (NULL): planning once a shape; may synchronise; timed apart. 0 = ok. */
  int (*prepare)(const struct smla_kernel* self, const smla_problem* problem, const smla_buffers* buffers, void* workspace, void* stream);
  /* 0 = launched; -ENOMEM = no memory. May not allocate, synchronise or read device memory on the host: it is captured in a graph. */
  int (*launch)(const struct smla_kernel* self, const smla_problem* problem, const smla_buffers* buffers, void* workspace, void* stream);
  /* Optional (NULL): text for the last non-zero return on this thread. */
  void (*last_error)(const struct smla_kernel* self, char* text, uint64_t text_bytes);
  /* Optional (NULL): splits that launch would use for this problem. */
  int32_t (*splits_used)(const struct smla_kernel* self, const smla_problem* problem);
} smla_kernel;

typedef struct smla_library {
  uint32_t abi_version, struct_size;
  int32_t num_kernels, pad0;
  const smla_kernel* const* kernels; /* pointers, so that the struct may grow */
} smla_library;

#if defined(__GNUC__)
#define SMLA_EXPORT __attribute__((visibility("default")))
#else
#define SMLA_EXPORT
#endif
typedef const smla_library* (*smla_get_library_fn)(void);
#ifdef __cplusplus
}
#endif
#endif
