# SPDX-License-Identifier: Apache-2.0
# Run at every build (cmake -DSOURCE=... -DOUT=... -P): OUT defines the commit that is being built, and is touched only when that changes.
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
if(failed)
  set(commit "")
endif()
if(changes)
  set(dirty true)
else()
  set(dirty false)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define SMLA_GIT_COMMIT \"${commit}\"\n#define SMLA_GIT_DIRTY ${dirty}\n")
