// SPDX-License-Identifier: Apache-2.0
#include "harness/verbs/verbs.h"

int main(int argc, char** argv) { return smla::smla_main(argc, argv); }
