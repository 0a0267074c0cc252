"""`initialize`, versions, capabilities, authentication."""

from __future__ import annotations

from acp_conformance.trial import INVALID_PARAMS, NotHere, Trial, check


@check("INIT-1")
async def initialize_is_answered(trial: Trial) -> None:
    """Without capabilities, too: they have a default in the schema, which is none of them."""
    async with trial.agent() as agent:
        version, capabilities = agent.welcome.get("protocolVersion"), agent.welcome.get("agentCapabilities", {})
        agent.expect(type(version) is int, f"`protocolVersion` is {version!r}")
        agent.expect(isinstance(capabilities, dict), f"`agentCapabilities` is {capabilities!r}")


@check("INIT-2", "ACP-INIT-002")
async def the_version_asked_for_is_agreed(trial: Trial) -> None:
    async with trial.agent() as agent:
        agent.expect(agent.welcome.get("protocolVersion") == 1, f"1 was answered with {agent.welcome}")


@check("INIT-3", "ACP-INIT-003")
async def another_version_gets_the_latest_one(trial: Trial) -> None:
    """0 may be refused: there was no such version."""
    trial.versions = True
    async with trial.agent(initialize=False) as agent:
        answers = [await agent.initialize(protocolVersion=99)]
    async with trial.agent(initialize=False) as agent:
        answers.append(await agent.answered(agent.initialize(protocolVersion=0)) or {"protocolVersion": 1})
    for agreed in [answer.get("protocolVersion") for answer in answers]:
        agent.expect(type(agreed) is int and 1 <= agreed < 99, f"another version was answered with {agreed!r}")


@check("INIT-4")
async def a_version_that_is_none_is_refused(trial: Trial) -> None:
    async with trial.agent(initialize=False) as agent:
        for params in ({}, {"protocolVersion": "one"}, {"protocolVersion": None}):
            await agent.refused("initialize", params, INVALID_PARAMS, why=f"with {params}")


@check("INIT-6", "ACP-INIT-004")
async def the_agent_says_who_it_is(trial: Trial) -> None:
    async with trial.agent() as agent:
        info = agent.welcome.get("agentInfo") or {}
        agent.expect(info.get("name") and info.get("version"), f"`agentInfo` is {info}")


@check("INIT-7")
async def what_is_unknown_is_ignored(trial: Trial) -> None:
    async with trial.agent(initialize=False) as agent:
        capabilities = {"fs": {"readTextFile": True, "fly": True}, "wings": {"count": 2}, "_meta": {"x": 1}}
        await agent.initialize(clientCapabilities=capabilities, clientInfo={"name": "kit", "version": "1"}, more=[1])
        await agent.new_session()


@check("INIT-8")
async def capabilities_may_be_left_out(trial: Trial) -> None:
    async with trial.agent(initialize=False) as agent:
        await agent.ask("initialize", {"protocolVersion": 1})
        await agent.new_session()


@check("INIT-10")
async def requests_before_initialize_are_answered(trial: Trial) -> None:
    async with trial.agent(initialize=False) as agent:
        await agent.answered(agent.new_session())


@check("INIT-11")
async def a_second_initialize_leaves_sessions_alone(trial: Trial) -> None:
    async with trial.agent() as agent:
        session = (await agent.new_session())["sessionId"]
        await agent.answered(agent.initialize())
        agent.expect((await agent.new_session())["sessionId"] != session, "the session's id was used again")


@check("AUTH-1")
async def methods_have_ids_and_names(trial: Trial) -> None:
    async with trial.agent() as agent:
        methods = agent.welcome.get("authMethods") or []
        ids = [method.get("id") for method in methods]
        agent.expect(len(set(ids)) == len(ids) and all(ids), f"the ids of `authMethods` are {ids}")
        agent.expect(all(method.get("name") for method in methods), f"a method has no name: {methods}")


@check("AUTH-3", "ACP-AUTH-002")
async def terminal_methods_are_for_who_has_terminals(trial: Trial) -> None:
    async with trial.agent(initialize=False) as agent:
        await agent.initialize(clientCapabilities={})
        wrong = [method for method in agent.welcome.get("authMethods") or [] if method.get("type") == "terminal"]
        agent.expect(not wrong, f"a terminal method is offered to a client without `auth.terminal`: {wrong}")


@check("AUTH-5")
async def an_unknown_method_is_refused(trial: Trial) -> None:
    async with trial.agent() as agent:
        await agent.refused("authenticate", {"methodId": "kit-no-such-method"}, INVALID_PARAMS)


@check("AUTH-7")
async def logout_works_if_it_is_offered(trial: Trial) -> None:
    async with trial.agent() as agent:
        if not agent.has("auth", "logout"):
            await agent.refused("logout", {})
            return
        raise NotHere("logging out would need a login to come back by")
