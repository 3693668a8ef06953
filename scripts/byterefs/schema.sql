-- The working store: the build's memory, one SQLite file per dataset.
-- Names without the byterefs_ prefix mean what mdim-refs/0.2 says of them.
-- name: working
CREATE TABLE meta (
    "key" TEXT PRIMARY KEY,
    "value" TEXT
) WITHOUT ROWID;

CREATE TABLE sources (
    source_id INTEGER PRIMARY KEY,
    source TEXT NOT NULL UNIQUE,   -- the URI opened at scan time, verbatim
    size BIGINT,
    mtime BIGINT,                  -- UTC seconds
    etag TEXT
);

-- What the scan of a source saw beside its arrays; refused says why a source was set aside.
CREATE TABLE byterefs_scans (
    source_id INTEGER PRIMARY KEY REFERENCES sources,
    mtime_ns BIGINT,
    version TEXT NOT NULL,
    refused TEXT,
    root TEXT NOT NULL             -- JSON {"attrs", "dtypes"}
);

-- What a catalogue told of a source when it was scanned: JSON [size, mtime_ns, etag].
CREATE TABLE byterefs_told (
    source_id INTEGER PRIMARY KEY REFERENCES sources,
    told TEXT NOT NULL
);

-- Metadata of a source's array, once per distinct content: consistency is a query over these.
CREATE TABLE byterefs_metas (
    meta TEXT PRIMARY KEY,         -- sha256 of record
    record TEXT NOT NULL           -- JSON of model.ArrayMeta
) WITHOUT ROWID;

-- Decoded values of coordinates, scalars and small static arrays, once per distinct content.
CREATE TABLE byterefs_values (
    "digest" TEXT PRIMARY KEY,     -- sha256 of data
    data BLOB NOT NULL
);

-- The physical layer. One row is all chunks of one array in one source, its columns packed:
-- 94,860 chunks of a BRAN month are two BLOBs of 0.7 MB instead of 94,860 rows of 89 bytes.
CREATE TABLE byterefs_arrays (
    source_id INTEGER NOT NULL REFERENCES sources,
    "array" TEXT NOT NULL,
    meta TEXT NOT NULL REFERENCES byterefs_metas,
    "digest" TEXT,                 -- of the decoded values, where they were read
    chunks TEXT,                   -- sha256 of offset, size and inline data; NULL without chunks
    "offset" BLOB,                 -- little-endian int64 on the source's chunk grid, C order; -1 absent
    size BLOB
);
CREATE UNIQUE INDEX byterefs_arrays_key ON byterefs_arrays (source_id, "array");
CREATE INDEX byterefs_arrays_digest ON byterefs_arrays ("digest");

CREATE TABLE byterefs_inline (
    source_id INTEGER NOT NULL REFERENCES sources,
    "array" TEXT NOT NULL,
    position INTEGER NOT NULL,     -- C order in the source's chunk grid
    data BLOB NOT NULL,            -- encoded bytes
    PRIMARY KEY (source_id, "array", position)
) WITHOUT ROWID;

-- The plan, replaced as a whole by each run of `plan`.
CREATE TABLE arrays (
    "array" TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    storage TEXT NOT NULL,
    dims TEXT NOT NULL,
    shape TEXT NOT NULL,
    chunks TEXT NOT NULL,
    dtype TEXT NOT NULL,
    fill TEXT,
    codec TEXT NOT NULL,
    attrs TEXT NOT NULL,
    affine TEXT,
    "values" BLOB,
    attr_dtypes TEXT NOT NULL,
    grid_mapping TEXT,
    info TEXT NOT NULL,
    refused TEXT
);

-- One row is all placements of one array in the order of dest, packed: little-endian int64, of each
-- its source's place in the plan, the place of source_array in names, src_offset, count and dest.
CREATE TABLE byterefs_placements (
    "array" TEXT PRIMARY KEY,
    names TEXT NOT NULL,           -- JSON
    slabs BLOB NOT NULL
) WITHOUT ROWID;

-- What `view` computed for the jobs after it (byterefs.kept); triggers empty it at any change of the rest.
CREATE TABLE byterefs_kept (
    name TEXT PRIMARY KEY,
    data BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE remap (
    target TEXT NOT NULL,
    prefix TEXT NOT NULL,
    replacement TEXT NOT NULL,
    PRIMARY KEY (target, prefix)
) WITHOUT ROWID;

-- name: published
CREATE TABLE meta (
    "key" TEXT PRIMARY KEY,
    "value" TEXT
) WITHOUT ROWID;

CREATE TABLE sources (
    source_id INTEGER PRIMARY KEY,
    source TEXT NOT NULL UNIQUE,
    size BIGINT,
    mtime BIGINT,
    etag TEXT
);

CREATE TABLE arrays (
    "array" TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    storage TEXT NOT NULL,
    dims TEXT NOT NULL,
    shape TEXT NOT NULL,
    chunks TEXT NOT NULL,
    dtype TEXT NOT NULL,
    fill TEXT,
    codec TEXT NOT NULL,
    attrs TEXT NOT NULL,
    affine TEXT,
    "values" BLOB,
    attr_dtypes TEXT NOT NULL,
    grid_mapping TEXT
);
-- what stands behind "values", so that a reader at a URL gets at it without their pages
CREATE INDEX byterefs_behind ON arrays ("array", attr_dtypes, grid_mapping);

CREATE TABLE placements (
    "array" TEXT NOT NULL,
    dest TEXT NOT NULL,
    source_id INTEGER NOT NULL REFERENCES sources,
    source_array TEXT NOT NULL,
    src_offset TEXT NOT NULL,
    count TEXT NOT NULL,
    PRIMARY KEY ("array", dest)
);

CREATE TABLE remap (
    target TEXT NOT NULL,
    prefix TEXT NOT NULL,
    replacement TEXT NOT NULL,
    PRIMARY KEY (target, prefix)
);

-- A row of refs_<array> keeps integers; its words live once, here.
CREATE TABLE byterefs_info (
    info_id INTEGER PRIMARY KEY,
    info TEXT NOT NULL UNIQUE
);

-- name: published_array
CREATE TABLE {array} (
    source_id INTEGER NOT NULL REFERENCES sources,
    {dims_declared},
    present INTEGER NOT NULL,
    "offset" BIGINT,
    size BIGINT,
    info TEXT,
    data BLOB,
    PRIMARY KEY (source_id, {dims})
) WITHOUT ROWID;

CREATE TABLE {refs_table} (
    {dims_declared},
    present INTEGER NOT NULL,
    source_id INTEGER,
    "offset" BIGINT,
    size BIGINT,
    info_id INTEGER,
    data BLOB,
    PRIMARY KEY ({dims})
) WITHOUT ROWID;

CREATE VIEW {refs_view} AS
SELECT
    {dims_of_r},
    r.present AS present,
    CASE WHEN r."offset" IS NULL THEN NULL ELSE s.source END AS path,
    r."offset" AS "offset",
    r.size AS size,
    i.info AS info,
    r.data AS data
FROM {refs_table} AS r
LEFT JOIN sources AS s ON s.source_id = r.source_id
LEFT JOIN byterefs_info AS i ON i.info_id = r.info_id;

-- name: held
-- A range cache of a reader: which chunks' bytes are held, and where. Joins refs_<array> by path
-- (its source), offset and size.
CREATE TABLE IF NOT EXISTS held (
    source TEXT NOT NULL,          -- verbatim as in sources, never remapped; of a derived chunk its name
    version TEXT NOT NULL,         -- its ETag, or else size and mtime
    "offset" BIGINT NOT NULL,
    size BIGINT NOT NULL,
    held TEXT NOT NULL CHECK (held IN ('ref', 'inline', 'copy', 'link')),
    data BLOB,                     -- of inline ones
    path TEXT,                     -- of copies, below this folder; of links, a local copy of the source
    crc INTEGER,                   -- CRC-32 of the bytes
    used BIGINT NOT NULL,          -- nanoseconds since 1970
    PRIMARY KEY (source, version, "offset", size)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS held_used ON held (used, size) WHERE held IN ('inline', 'copy');
CREATE INDEX IF NOT EXISTS held_path ON held (path) WHERE path IS NOT NULL;

CREATE TABLE IF NOT EXISTS links (
    source TEXT NOT NULL,
    version TEXT NOT NULL,
    path TEXT NOT NULL,
    size BIGINT NOT NULL,
    mtime_ns BIGINT NOT NULL,
    PRIMARY KEY (source, version)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS lineage (
    derived TEXT NOT NULL,
    version TEXT NOT NULL,         -- sha256 of what it was made of
    source TEXT NOT NULL,
    source_version TEXT NOT NULL,
    "offset" BIGINT NOT NULL,
    size BIGINT NOT NULL,
    PRIMARY KEY (derived, source, source_version, "offset", size)
) WITHOUT ROWID;
