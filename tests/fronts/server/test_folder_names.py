"""What the page completes: folders and files by name, of the token's folders alone."""

from pathlib import Path

from acp_agent.fronts.server.folder_names import FilesAsked, FolderNames, FoldersAsked
from acp_agent.opening import Opening
from tests.fronts.server.documented import checking
from tests.fronts.server.test_server import Place, served


async def names(place: Place, address: str, token: str = "", **query: str) -> tuple[int, object]:
    async with checking() as web:
        headers = {"Authorization": f"Bearer {token or place.token}"}
        answer = await web.get(f"{place.http}{address}", headers=headers, params=query)
    return answer.status_code, answer.json()


def tree(top: Path) -> None:
    for folder in ("work/app/src", "work/Apple", "work/.hidden", "workshop", "work/node_modules"):
        (top / folder).mkdir(parents=True)
    for file in ("work/app/src/calc.py", "work/app/README.md", "workshop/secret.txt"):
        (top / file).write_text("")
    (top / "work/link").symlink_to(top / "workshop")


async def test_folders_and_files_are_completed_below_the_folders_of_the_token(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    tree(top)
    work = str(top / "work")
    async with served(tmp_path) as place:
        narrow = place.identities.add("narrow", (work,))
        assert await names(place, "/folders", narrow) == (200, [work])
        assert await names(place, "/folders", narrow, path=f"{top}/w") == (200, [work])
        assert await names(place, "/folders", place.token, path=f"{top}/w") == (200, [work, f"{work}shop"])
        assert await names(place, "/folders", narrow, path=f"{work}/") == (
            200,
            [f"{work}/Apple", f"{work}/app", f"{work}/node_modules"],
        )
        assert await names(place, "/folders", place.token, path=f"{work}/l") == (200, [f"{work}/link"])
        assert await names(place, "/folders", narrow, path=f"{work}/l") == (200, [])  # It leads out of them.
        assert await names(place, "/files", narrow, folder=work, query="calc") == (200, ["app/src/calc.py"])
        assert await names(place, "/files", place.token, folder=f"{top}/workshop") == (200, ["secret.txt"])
        for folder in (f"{top}/workshop", f"{work}/link", f"{work}/../workshop", "work", "/nowhere", "/\0"):
            assert await names(place, "/files", narrow, folder=folder) == (200, []), folder
        status, said = await names(place, "/files", narrow)
        assert status == 400 and "`folder` is missing" in str(said)


async def test_who_only_looks_on_and_whose_files_are_elsewhere_gets_no_names(tmp_path: Path) -> None:
    config = '[places.box]\nimage = "debian:12"\n[server.owners.away]\nplace = "box"\n'
    async with served(tmp_path, config=config) as place:
        for scope in ("watch", "approve"):
            token = place.identities.add(scope, scope=scope)
            for path in ("/folders", "/files?folder=/tmp"):
                assert (await names(place, path, token))[0] == 403
        away = place.identities.add("away")
        assert await names(place, "/folders", away, path="/") == (200, [])
        assert await names(place, "/files", away, folder=str(tmp_path)) == (200, [])


async def test_what_is_no_folder_that_may_be_opened_has_no_names() -> None:
    known = FolderNames(Opening({}), ("/elsewhere",))
    for path in ("/nowhere/x", "work", "//", "/\0/x"):
        assert await known.folders(FoldersAsked(path)) == await known.files(FilesAsked(path)) == [], path
