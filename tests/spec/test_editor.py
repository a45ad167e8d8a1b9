"""Editors: taplo completes keys and judges specs by our schema.

`npm install --no-save @taplo/lsp` in the checkout brings the language server that editors use. The
extra `test` brings the command that judges files. Tests without theirs are skipped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any  # documents of a protocol

import pytest

from tests.spec.test_malformed import CATALOGUE
from vmcjob.cli.schema import Documents, make_schema

NODE = shutil.which("node")
TAPLO = shutil.which("taplo", path=Path(sys.executable).parent) or shutil.which("taplo")
SERVER = Path(__file__).with_name("toml_server.cjs")
SCHEMA = "vmcjob-spec.schema.json"
SHAPE = re.compile(
    r"^job\.toml:\d+:\d+: (?:\S+: )?(?:missing|unknown|not valid TOML|expected)", re.MULTILINE
)
NOT_SAID = {
    "An active space is two numbers": "the empty array is good too",
    "An active space has room for its electrons": "the limit depends on the electrons",
    "A whole number written with a point is shown without": "1e3 is an integer in JSON Schema",
    "A time without quotes is shown with them": "taplo hands a time on as text",
    "An integer beyond 64 bits is none of TOML's": "taplo hands no such integer on",
    "Variables have lists of numbers": "values of a sweep have the types of their keys",
    "A misspelt swept key is told the nearest": "variables of a sweep have any names",
    "A swept value is judged like one in its table, and shown in the sweep": "as before",
}
"""Specs that are refused for their shape by us alone, and why."""

pytestmark = pytest.mark.timeout(60)


def has_server() -> bool:
    """Whether Node.js finds the language server."""
    asked = [str(NODE), "-e", 'require.resolve("@taplo/lsp")']
    return (
        NODE is not None
        and not subprocess.run(
            asked, cwd=SERVER.parent, capture_output=True, check=False
        ).returncode
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schema of specs."""
    place = tmp_path_factory.mktemp("editor")
    (place / SCHEMA).write_text(json.dumps(make_schema(Documents.SPEC)))
    return place


class Server:
    """A language server at the other end of two pipes."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [str(NODE), str(SERVER)], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.inwards, self.outwards = self.process.stdin, self.process.stdout
        self.last = 0

    def send(self, **message: Any) -> None:
        """One message of the protocol."""
        content = json.dumps({"jsonrpc": "2.0"} | message).encode()
        self.inwards.write(f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
        self.inwards.flush()

    def receive(self) -> Mapping[str, Any]:
        """The next message of the server; questions to the editor get empty answers."""
        length = 0
        while line := self.outwards.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name == b"Content-Length" else length
        assert length, "the server has ended"
        message = json.loads(self.outwards.read(length))
        if "method" in message and "id" in message:
            items = message["params"].get("items") if "params" in message else None
            self.send(id=message["id"], result=[{} for _ in items] if items else None)
        return message

    def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """The answer to a question."""
        self.last += 1
        self.send(id=self.last, method=method, params=params)
        while True:
            message = self.receive()
            if message.get("id") == self.last and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def wait(self, method: str) -> None:
        """Return at the next message of a kind."""
        while self.receive().get("method") != method:
            pass

    def end(self) -> None:
        """End the server and close both pipes."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server that has been told of the folder."""
    if not has_server():
        pytest.skip("no language server: npm install --no-save @taplo/lsp")
    server = Server(folder)
    place = folder.as_uri()
    about = {"processId": os.getpid(), "rootUri": place, "capabilities": {}}
    server.ask("initialize", about | {"workspaceFolders": [{"uri": place, "name": "specs"}]})
    server.send(method="initialized", params={})
    yield server
    server.end()


@pytest.mark.parametrize(
    ("before", "key", "meaning"),
    [
        ("[sampler]\n", "walkers", "in all, shared by the devices"),
        ('[optimizer]\nkind = "spring"\n', "damping", "diagonal of the overlap matrix"),
        ("[evaluate]\n", "target_error", "hartree"),
    ],
)
def test_an_editor_completes_and_explains_a_key(
    server: Server, folder: Path, before: str, key: str, meaning: str
) -> None:
    """A schema that editors cannot follow helps nobody, however right it is."""
    text = f'#:schema ./{SCHEMA}\nname = "h2"\n\n{before}'
    uri = (folder / f"{key}.toml").as_uri()
    document = {"uri": uri, "languageId": "toml", "version": 1, "text": text + key[:3]}
    server.send(method="textDocument/didOpen", params={"textDocument": document})
    server.wait("taplo/didChangeSchemaAssociation")
    place = {"line": text.count("\n"), "character": 3}
    items = server.ask("textDocument/completion", {"textDocument": {"uri": uri}, "position": place})
    found = [item["documentation"]["value"] for item in items if item["label"] == key]
    assert any(meaning in words for words in found), items  # several kinds may have the key


@pytest.mark.skipif(TAPLO is None, reason="taplo is not installed: pip install taplo")
def test_the_schema_refuses_what_is_refused_for_its_shape(folder: Path) -> None:
    """An editor that is content with a spec that `submit` refuses hides the mistake."""
    names = {f"spec{number}.toml": entry for number, entry in enumerate(CATALOGUE)}
    for name, entry in names.items():
        (folder / name).write_text(f"#:schema ./{SCHEMA}\n{entry.spec}", "utf-8")
    done = subprocess.run(
        [str(TAPLO), "check", *names],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    refused = set(re.findall(r"/(spec\d+\.toml)", done.stderr))
    of_shape = {name for name, entry in names.items() if SHAPE.search(entry.complaints)}
    assert len(of_shape) > 40
    assert {names[name].title for name in of_shape - refused} == set(NOT_SAID)
