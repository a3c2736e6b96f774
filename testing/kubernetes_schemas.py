"""Validates manifests, as an API server would by schema alone: core types by the schemas of several versions of
Kubernetes, JobSet's and Kueue's by their custom resource definitions, templates of jobs by both. Unknown fields are
errors. Runs in the venv of tools/versions/kubernetes.txt:

    kubernetes_schemas.py --crds FOLDER... -- MANIFEST...

Prints one line per error; the exit status is 1 if there is one, and 2 if a manifest holds no document.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

# The oldest that has all that the manifests use (a job's backoffLimitPerIndex is on by default), and a newer one.
VERSIONS = ("1.29", "1.35")
JOB = ("batch/v1", "Job")


def strict(schema: Any) -> Any:
    """The schema of a custom resource, without fields that it does not declare."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    open_ended = (
        schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    )
    if (
        isinstance(schema.get("properties"), dict)
        and schema.get("type") == "object"
        and not open_ended
    ):
        made["additionalProperties"] = False
    return made


def definitions(folders: list[pathlib.Path]) -> dict[tuple[str, str], Any]:
    """Schemas by apiVersion and kind."""
    found = {}
    for path in sorted(file for folder in folders for file in folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if not document or document.get("kind") != "CustomResourceDefinition":
                continue
            spec = document["spec"]
            for version in spec["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                # An API server checks metadata by itself.
                schema["properties"]["metadata"] = {"type": "object"}
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def core_errors(document: dict[str, Any]) -> Iterator[str]:
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"Kubernetes {version}: {error.message}"


def templates(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The jobs that a JobSet makes."""
    for job in document["spec"].get("replicatedJobs", []):
        api, kind = JOB
        yield {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": job["name"]},
            **job["template"],
        }


def errors_of(document: dict[str, Any], known: dict[tuple[str, str], Any]) -> Iterator[str]:
    schema = known.get((document["apiVersion"], document["kind"]))
    if schema is None:
        yield from core_errors(document)
        return
    for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
    for job in templates(document):
        yield from core_errors(job)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--crds", nargs="+", type=pathlib.Path, required=True)
    parser.add_argument("manifests", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    known = definitions(options.crds)
    status = 0
    for path in options.manifests:
        documents = [each for each in yaml.safe_load_all(path.read_text()) if each]
        if not documents:
            print(f"{path}: no document")
            return 2
        for document in documents:
            name = f"{document['kind']} {document['metadata']['name']}"
            for error in errors_of(document, known):
                print(f"{path}: {name}: {error}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
