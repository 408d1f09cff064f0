module headrace/bench/load

go 1.25
