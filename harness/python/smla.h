/* SPDX-License-Identifier: Apache-2.0 */
/* libsmla.so: the harness as a C library, for the Python module beside it and for any other language. Nothing but these functions is exported.
 * Text is UTF-8. A function that fails says why in smla_error(); strings that it returns live until the next call on the same thread. */
#ifndef SMLA_H
#define SMLA_H
#include <stdint.h>

#include "kernels/api/smla_kernel.h"
#ifdef __cplusplus
extern "C" {
#endif

#define SMLA_API_VERSION 1u

/* SMLA_API_VERSION of the library. */
SMLA_EXPORT uint32_t smla_api_version(void);
/* One line about the last call on this thread that failed; "" if none did. */
SMLA_EXPORT const char* smla_error(void);

/* "key=value ..." of cases/README.md, "Contract", as the struct that a kernel declares. `out` comes in with its struct_size. 0 = ok. */
SMLA_EXPORT int smla_contract_of(const char* words, smla_contract* out);

/* Serves as a worker, in a process that the harness started as one (`smla check --python`). `load` gives the kernels; where it cannot, it returns
 * NULL and writes one line of at most text_bytes, NUL included. gpu: ordinal, -1 = none. Returns the exit status of the process. */
typedef const smla_library* (*smla_load_fn)(char* text, uint64_t text_bytes);
SMLA_EXPORT int smla_worker(smla_load_fn load, int gpu);

/* A session: the cases and kernels that flags of `smla check` choose, judged one by one by workers that stay. Its rows go to --out like those of
 * `smla check`. Not to be used by two threads at a time. */
typedef struct smla_session smla_session;
/* argv[0] is the first flag. NULL = refused. */
SMLA_EXPORT smla_session* smla_open(int argc, const char* const* argv);
SMLA_EXPORT int64_t smla_case_count(const smla_session* session);
/* The i-th case's line, i from 0; NULL = there is none. */
SMLA_EXPORT const char* smla_case_line(const smla_session* session, int64_t i);
/* Asks every kernel the i-th case. A JSON array with an object a kernel: kernel, status, red, detail, repro, and out and lse with the columns of
 * accuracy.csv as text. NULL = not done. */
SMLA_EXPORT const char* smla_check_case(smla_session* session, int64_t i);
/* Writes summary.md, junit.xml and env.json; ends the workers. NULL is fine. */
SMLA_EXPORT void smla_close(smla_session* session);

#ifdef __cplusplus
}
#endif
#endif
