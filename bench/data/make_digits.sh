#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Make digits.txt from the data set as scikit-learn ships it (sklearn/datasets/data/digits.csv.gz):
#   sh make_digits.sh digits.csv.gz > digits.txt
# Each row of the source is 64 comma-separated values 0..16 and a label.
set -eu
gzip -dc -- "$1" | awk -F, '
NF != 65 { print "row " NR ": " NF " fields, want 65" > "/dev/stderr"; exit 1 }
{
    line = ""
    for (i = 1; i <= 64; i++) line = line substr("0123456789abcdefg", $i + 1, 1)
    print line int($65)
}'
