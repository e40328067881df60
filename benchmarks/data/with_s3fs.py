"""``python with_s3fs.py BUCKET PREFIX TARGET``: all files beneath a prefix, by fsspec's file system of S3."""

import sys

import s3fs

bucket, prefix, target = sys.argv[1:]
s3fs.S3FileSystem(config_kwargs={"s3": {"addressing_style": "path"}}).get(
    f"{bucket}/{prefix}", target, recursive=True
)
