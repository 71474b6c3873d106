#!/bin/sh
# Runs the kernels under compute-sanitizer: sanitize.sh [memcheck|racecheck|synccheck|initcheck ...]
#
# Without arguments: all four. memcheck also watches the tests of single ops, on their smaller
# sizes. Start it from the repository's root with the Python that has the CUDA extra; PYTHON names
# another. Exits with the first tool's complaint. Kernels should be in the cache already: a compiler
# under a sanitizer is slow.
set -u
PYTHON=${PYTHON:-python3}
PATH=$PATH:/usr/local/cuda/bin
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed" >&2; exit 2; }
export CUDA_MODULE_LOADING=LAZY
status=0

# API errors are not reported: libraries ask for features this way and handle the refusal.
watch() {
	tool=$1
	shift
	began=$(date +%s)
	compute-sanitizer --tool "$tool" --target-processes application-only --report-api-errors no \
		--error-exitcode 9 --print-limit 20 "$@"
	code=$?
	echo "=== $tool: exit status $code after $(($(date +%s) - began)) s"
	[ "$code" = 0 ] || status=1
}

for tool in ${*:-memcheck racecheck synccheck initcheck}; do
	case $tool in
	memcheck)
		watch memcheck "$PYTHON" tools/gpu/sanitize_steps.py
		watch memcheck "$PYTHON" -m pytest -q -m gpu -p no:cacheprovider tests/gpu/test_ops.py \
			-k 'not 151936 and not 9728 and not 4096 and not MOST and not MANY'
		;;
	racecheck) watch racecheck "$PYTHON" tools/gpu/sanitize_steps.py --small --rows 3 12 40 ;;
	synccheck) watch synccheck "$PYTHON" tools/gpu/sanitize_steps.py --small --rows 3 12 40 ;;
	initcheck) watch initcheck "$PYTHON" tools/gpu/sanitize_steps.py --small --rows 3 12 40 ;;
	*)
		echo "unknown tool $tool" >&2
		exit 2
		;;
	esac
done
exit $status
