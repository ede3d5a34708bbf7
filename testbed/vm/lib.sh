# Sourced by fetch and vm: where things lie, and what the matrix says.
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(cd "$here/../.." && pwd)
state=${VM_DIR:-$top/build/vm}	# kernels, QEMU and results; nothing of it is committed

die() { echo "vm: $*" >&2; exit 1; }

# matrix [WHERE]: the names of the kernels, all or those marked WHERE.
matrix() { awk -v w="${1:-}" '!/^#/ && NF && (w == "" || $3 == w) { print $1 }' "$here/kernels"; }

# package_of NAME: the package that holds the newest build of a kernel.
package_of() {
	local meta
	meta=$(awk -v n="$1" '!/^#/ && $1 == n { print $2 }' "$here/kernels")
	[ -n "$meta" ] || die "no kernel named $1; the matrix has: $(matrix | xargs)"
	apt-cache depends --no-recommends --no-suggests "$meta" 2>/dev/null |
		awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }'
}
