#!/bin/sh
# Runs the kernels under compute-sanitizer: sanitize.sh [WHAT ...], WHAT being memcheck, ops,
# racecheck, synccheck or initcheck; all of them without arguments.
#
# `memcheck` watches steps of the engine, `ops` the tests of single ops on their smaller sizes (OPS
# names other test files). Start it from the repository's root with the Python that has the CUDA
# extra; PYTHON names another, LIMIT_S the seconds that one of them may take. Exits with 1 when a
# tool complains. Kernels should be in the cache already: a compiler under a sanitizer is slow.
set -u
PYTHON=${PYTHON:-python3}
LIMIT_S=${LIMIT_S:-150}
PATH=$PATH:/usr/local/cuda/bin
command -v compute-sanitizer >/dev/null || {
	echo "compute-sanitizer is not installed" >&2
	exit 2
}
status=0

# API errors are not reported: libraries ask for features this way and handle the refusal.
run() {
	tool=$1
	shift
	timeout "$LIMIT_S" compute-sanitizer --tool $tool --target-processes application-only \
		--report-api-errors no --error-exitcode 9 --print-limit 20 "$PYTHON" "$@"
}

watch() {
	began=$(date +%s)
	run "$@"
	code=$?
	echo "=== $1: exit status $code after $(($(date +%s) - began)) s"
	[ "$code" = 0 ] || status=1
}

run memcheck tools/gpu/sanitize_steps.py --plant >/dev/null 2>&1
[ $? = 9 ] || { echo "compute-sanitizer does not notice a planted fault" >&2; exit 2; }

for tool in ${*:-memcheck ops racecheck synccheck initcheck}; do
	case $tool in
	memcheck) watch memcheck tools/gpu/sanitize_steps.py ;;
	ops)
		watch memcheck -m pytest -q -m gpu -p no:cacheprovider ${OPS:-tests/gpu/test_ops.py} \
			-k 'not 151936 and not 9728 and not 4096 and not MOST and not MANY'
		;;
	racecheck)
		# It does not follow an mbarrier behind a __syncwarp, by which that kernel hands over work, nor
		# one that counts copies by cp.async, as scan_pieces has for single words.
		watch "racecheck --kernel-name-exclude kernel_substring=attend_tiles_wgmma" \
			tools/gpu/sanitize_steps.py --small --rows 12
		;;
	synccheck) watch synccheck tools/gpu/sanitize_steps.py --small --rows 3 12 ;;
	initcheck)
		watch "initcheck --check-api-memory-access no" \
			tools/gpu/sanitize_steps.py --small --rows 3 12 --own
		;;
	*)
		echo "unknown tool $tool" >&2
		exit 2
		;;
	esac
done
exit $status
