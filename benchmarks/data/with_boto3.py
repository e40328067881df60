"""``python with_boto3.py BUCKET PREFIX TARGET``: all files beneath a prefix, by the SDK's own transfers, 16 at once."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

bucket, prefix, target = sys.argv[1:]
client = boto3.client("s3", config=Config(max_pool_connections=32, s3={"addressing_style": "path"}))
pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
keys = [one["Key"] for page in pages for one in page["Contents"]]
settings = TransferConfig(max_concurrency=16)


def get(key: str) -> None:
    path = os.path.join(target, key[len(prefix) :])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    client.download_file(bucket, key, path, Config=settings)


with ThreadPoolExecutor(16 if len(keys) > 16 else 1) as pool:
    list(pool.map(get, keys))
