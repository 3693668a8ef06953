# R on the SQLite form: DBI finds the rows of refs_<array>, base R reads and decodes the bytes.
suppressMessages({library(DBI); library(RSQLite); library(jsonlite)})
fixture <- commandArgs(TRUE)[1]

decode <- function(bytes, codec, kind, n) {
  for (step in rev(c(codec$filters, Filter(Negate(is.null), list(codec$compressor))))) {
    if (step$id == "zlib") bytes <- memDecompress(bytes, "gzip")
    else if (step$id == "shuffle") bytes <- as.vector(t(matrix(bytes, ncol = step$elementsize)))
    else if (step$id == "fletcher32") bytes <- head(bytes, -4)
    else if (step$id == "imagecodecs_delta") {
      steps <- matrix(readBin(bytes, "integer", n, 2, FALSE, "little"), nrow = tail(unlist(step$shape), 1))
      bytes <- writeBin(as.integer(apply(steps, 2, cumsum) %% 65536), raw(), 2, "little")
    } else stop("no codec ", step$id)
  }
  size <- as.integer(substring(kind, 3)); endian <- if (substr(kind, 1, 1) == ">") "big" else "little"
  if (substring(kind, 2) == "i8") return(as.character(structure(readBin(bytes, "double", n, 8, endian = endian), class = "integer64")))
  what <- if (substr(kind, 2, 2) == "f") "double" else "integer"
  readBin(bytes, what, n, size, signed = substr(kind, 2, 2) != "u" || size > 2, endian = endian)
}

read_array <- function(con, name) {
  a <- dbGetQuery(con, "SELECT * FROM arrays WHERE array = ?", params = list(name))
  shape <- fromJSON(a$shape); chunks <- fromJSON(a$chunks); codec <- fromJSON(a$codec, simplifyVector = FALSE)
  out <- array(if (is.na(a$fill)) 0 else as.numeric(a$fill), rev(shape))
  if (substring(a$dtype, 2) == "i8") storage.mode(out) <- "character"
  rows <- dbGetQuery(con, sprintf('SELECT * FROM "refs_%s" WHERE present = 1', name))
  for (i in seq_len(nrow(rows))) {
    r <- rows[i, ]
    bytes <- if (is.na(r$offset)) r$data[[1]] else {
      f <- file(r$path, "rb"); seek(f, r$offset); b <- readBin(f, "raw", r$size); close(f); b
    }
    stopifnot(length(bytes) == r$size)
    values <- array(decode(bytes, codec, a$dtype, prod(chunks)), rev(chunks))
    first <- unlist(r[paste0("dim_", seq_along(shape) - 1)]) * chunks; n <- pmin(chunks, shape - first)
    put <- Map(function(at, k) at + seq_len(k), rev(first), rev(n))
    out <- do.call(`[<-`, c(list(out), put, list(value = do.call(`[`, c(list(values), lapply(rev(n), seq_len), drop = FALSE)))))
  }
  as.vector(out)
}

compared <- function(case) tryCatch({
  con <- dbConnect(SQLite(), file.path(fixture, "forms/access", case$dataset, "sqlite/store.sqlite"), flags = SQLITE_RO, bigint = "numeric")
  on.exit(dbDisconnect(con))
  got <- read_array(con, case$array); wanted <- unlist(case$values)
  if (is.character(got)) return(if (identical(got, wanted)) "ok" else "differs")
  wanted <- suppressWarnings(as.numeric(ifelse(wanted == "NaN", NaN, wanted)))
  if (identical(is.nan(got), is.nan(wanted)) && all(got == wanted, na.rm = TRUE)) "ok" else "differs"
}, error = function(e) paste("not read:", conditionMessage(e)))

cases <- fromJSON(file.path(fixture, "expected.json"), simplifyVector = FALSE)$cases
report <- list(reader = paste("R", getRversion(), "RSQLite", packageVersion("RSQLite")), form = "sqlite", cases = lapply(cases, compared))
cat(toJSON(report, auto_unbox = TRUE), "\n")
