# R's stars on the published VRT, with the GDAL that Debian's sf is built with.
suppressMessages({library(stars); library(jsonlite)})
fixture <- commandArgs(TRUE)[1]

# sf opens the first group of a file and nothing else: leave out the others, as the lines of open.json do
only <- function(text, group) {
  row <- seq_along(text); at <- grep("^    </?Group", text)
  if (!length(at)) return(paste(text, collapse = "\n"))
  own <- which(text == paste0("    <Group name=\"", group, "\">"))
  own <- if (length(own)) own:min(at[at > own])
  paste(text[row < at[1] | row > max(at) | row %in% own], collapse = "\n")
}

compared <- function(case) tryCatch({
  if (substring(case$dtype, 2) == "i8") stop("64-bit integers come as doubles")
  vrt <- Sys.glob(file.path(fixture, "forms/access", case$dataset, "vrt/*.vrt"))
  # stars 0.6-0's own read_mdim stops at any axis whose units are degrees, of a netCDF file too
  found <- st_as_stars(sf::gdal_read_mdim(only(readLines(vrt), dirname(case$array)), basename(case$array))$array_list)
  got <- as.numeric(unclass(found[[1]]))
  wanted <- suppressWarnings(as.numeric(unlist(case$values)))
  wanted[wanted %in% suppressWarnings(as.numeric(case$missing))] <- NA
  if (length(got) != length(wanted)) return(paste("differs:", length(got), "values, not", length(wanted)))
  same <- isTRUE(all.equal(got, wanted * case$scale, tolerance = 1e-15))
  if (same && identical(is.na(got), is.na(wanted))) "ok" else "differs"
}, error = function(e) paste("not read:", conditionMessage(e)))

cases <- fromJSON(file.path(fixture, "expected.json"), simplifyVector = FALSE)$cases
gdal <- sf::sf_extSoftVersion()[["GDAL"]]
report <- list(reader = paste("stars", packageVersion("stars"), "GDAL", gdal), form = "vrt", cases = lapply(cases, compared))
cat(toJSON(report, auto_unbox = TRUE), "\n")
