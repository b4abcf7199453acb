"""Keys and passwords come from the environment; no part is named with one. Commands: test_offline.py, campaign."""

import pytest

import corag
from common.configuration import parse, split_parts
from corag.cli import doctor
from corag.errors import InputError, ReaderError
from tests.chat_server import ChatServer, Reply

KEY = "sk-PLANTED-0123456789"


@pytest.mark.parametrize(
    "part",
    [
        f"openai(model=x, api_key={KEY})",
        f"openai(model=x, API-Key={KEY})",
        f"openai(model=x, base_url=http://user:{KEY}@127.0.0.1:1/v1)",
        f"self-route(reader=openai(model=x, api_key={KEY}))",
        f"self-route(full=self-route(reader=ollama(host=http://user:{KEY}@h)))",
    ],
)
def test_a_part_that_names_a_key_is_refused_with_the_variable_to_set(part):
    for read in (parse, split_parts):
        with pytest.raises(InputError, match="OPENAI_API_KEY") as caught:
            read(part)
        assert KEY not in str(caught.value)


def test_an_argument_in_python_that_is_a_key_is_refused():
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        corag.reader("openai", model="x", api_key=KEY)
    for server, setting, variable in (("openai", "base_url", "OPENAI_BASE_URL"), ("ollama", "host", "OLLAMA_HOST")):
        with pytest.raises(InputError, match=variable) as caught:
            corag.reader(server, model="x", **{setting: f"http://user:{KEY}@127.0.0.1:1"})
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("address", ["http://host/v1", "http://[", "//host"])
def test_doctor_does_not_show_the_password_of_an_address(monkeypatch, capsys, address):
    monkeypatch.setenv("OPENAI_BASE_URL", address.replace("//", f"//user:{KEY}@"))
    monkeypatch.setattr(doctor, "TIMEOUT_S", 0.01)
    doctor.run(doctor.DoctorConfig())
    said = capsys.readouterr().out
    assert KEY not in said and f"{address} (not contacted)" in said


@pytest.mark.parametrize("shift", range(15, 60, 14))
def test_a_key_that_a_server_echoes_where_its_error_is_cut_is_hidden(monkeypatch, shift):
    key = KEY + "-of-a-length-that-is-cut"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    echo = Reply(status=400, error=" " * (1990 - shift) + key)
    with ChatServer(echo) as server, pytest.raises(ReaderError) as caught:
        corag.reader("openai", model="llama3.1:8b", base_url=server.base_url).answer("Who?", "Berlin.")
    assert key[:6] not in str(caught.value) and "***" in str(caught.value)
