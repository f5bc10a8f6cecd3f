//! Chat templates: what Hugging Face's environment does, and limits.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_text::{ChatRequest, ChatTemplate, ContentFormat, Error, Kind, prepare_messages};
use serde_json::{Value, json};

fn specials() -> BTreeMap<String, String> {
    [("bos_token", "<s>"), ("eos_token", "</s>")]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into()
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, specials()).unwrap()
}

fn render(source: &str, messages: &Value) -> octavo_text::Result<String> {
    let request = ChatRequest { messages: messages.as_array().unwrap(), ..ChatRequest::default() };
    template(source).render(&request)
}

const CHATML: &str = "{{ bos_token }}{% for message in messages %}\
    {{ '<|' + message.role + '|>' + message.content + '<|end|>\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

#[test]
fn renders_a_conversation() {
    let messages = [json!({"role": "user", "content": "Hi <b>&amp;"})];
    let mut request = ChatRequest { messages: &messages, ..ChatRequest::default() };
    assert_eq!(template(CHATML).render(&request).unwrap(), "<s><|user|>Hi <b>&amp;<|end|>\n");
    request.add_generation_prompt = true;
    assert_eq!(template(CHATML).render(&request).unwrap(), "<s><|user|>Hi <b>&amp;<|end|>\n<|assistant|>");
}

#[test]
fn trims_blocks_as_hugging_face_does() {
    let source = "{% for message in messages %}\n    {% if true %}\nx\n    {% endif %}\n{% endfor %}\nend\n";
    assert_eq!(render(source, &json!([{"role": "user", "content": "a"}])).unwrap(), "x\nend");
}

#[test]
fn speaks_python() {
    let none = json!([]);
    for (source, wanted) in [
        (
            "{{ true }} {{ none }} {{ 1.0 }} {{ ['a', none] }} {{ {'k': \"it's\"} }}",
            "True None 1.0 ['a', None] {'k': \"it's\"}",
        ),
        ("{{ ' x '.strip() }}{{ 'a-b'.split('-')[-1] }}{{ 'abc'.upper()[::-1] }}", "xbCBA"),
        (
            "{{ 'abc'.startswith('ab') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.items() | list }}",
            "True2[['a', 1]]",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(9) %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "12",
        ),
        ("{% generation %}a{% endgeneration %}{%- generation -%} b {%- endgeneration -%}", "ab"),
        ("{{ {'b': '<é>', 'a': [1]} | tojson }}", "{\"b\": \"<é>\", \"a\": [1]}"),
        ("{{ {'a': 1} | tojson(indent=4) }}", "{\n    \"a\": 1\n}"),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", "\"\\u00e9\""),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ [1, none] | join(', ') }}{{ missing | length }}{{ ['x'] | trim }}", "1, None0['x']"),
        ("{{ 'abc' is sequence }}{{ 'abc' is iterable }}{{ 1 is iterable }}", "TrueTrueFalse"),
    ] {
        assert_eq!(render(source, &none).unwrap(), wanted, "{source}");
    }
}

#[test]
fn reads_the_clock_that_it_is_given() {
    let now = "2026-01-05T12:00:00".parse().unwrap();
    let source = "{{ strftime_now('%d %B %Y, %-d') }}";
    let template = ChatTemplate::with_clock(source, specials(), Arc::new(move || now)).unwrap();
    assert_eq!(template.render(&ChatRequest::default()).unwrap(), "05 January 2026, 5");
}

#[test]
fn tells_a_refusal_from_a_fault() {
    let refusal = render("{{ raise_exception('No system role') }}", &json!([])).unwrap_err();
    assert_eq!(refusal, Error::Refused("No system role".to_owned()));
    assert_eq!((refusal.kind(), refusal.param()), (Kind::Invalid, Some("messages")));
    let fault = render("{{ messages[0].content.text }}", &json!([])).unwrap_err();
    assert_eq!((fault.kind(), fault.param()), (Kind::Invalid, Some("messages")));
    assert!(fault.to_string().starts_with("the chat template failed: undefined value"), "{fault}");
    let syntax = ChatTemplate::new("{% if %}", specials()).unwrap_err();
    assert_eq!(syntax.kind(), Kind::Model);
    assert!(syntax.to_string().contains("cannot be compiled"), "{syntax}");
}

#[test]
fn stops_templates_that_run_away() {
    for source in [
        "{% for a in range(90000) %}{% for b in range(90000) %}{% set x = a * b %}{% endfor %}{% endfor %}",
        "{% for a in range(90000) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x' * 10000000000 }}",
        "{% include 'default' %}",
    ] {
        let error = render(source, &json!([])).unwrap_err();
        assert!(matches!(error, Error::Template(_)), "{source}: {error}");
    }
    assert!(ChatTemplate::new(&"x".repeat(2 << 20), specials()).is_err());
}

#[test]
fn passes_tools_and_the_requests_own_arguments() {
    let source = "{{ tools is none }}|{{ (tools or [])|map(attribute='function.name')|join(',') }}|{{ think }}|{{ eos_token }}";
    let tools = [json!({"type": "function", "function": {"name": "f"}})];
    let kwargs = json!({"think": false, "eos_token": "own"});
    let mut request =
        ChatRequest { kwargs: kwargs.as_object(), tools: Some(&tools), ..ChatRequest::default() };
    assert_eq!(template(source).render(&request).unwrap(), "False|f|False|own");
    assert_eq!(template(source).render(&ChatRequest::default()).unwrap(), "True|||</s>");
    let reserved = json!({"messages": []});
    request.kwargs = reserved.as_object();
    let error = template(source).render(&request).unwrap_err();
    assert_eq!(error.param(), Some("chat_template_kwargs"));
    let mut both = template("plain");
    both.add_tool_use("with tools").unwrap();
    request.kwargs = None;
    assert_eq!(both.render(&request).unwrap(), "with tools");
    assert_eq!(both.render(&ChatRequest::default()).unwrap(), "plain");
}

#[test]
fn continues_the_final_message() {
    let messages =
        [json!({"role": "user", "content": "Say"}), json!({"role": "assistant", "content": "I was saying "})];
    let mut request =
        ChatRequest { messages: &messages, continue_final_message: true, ..ChatRequest::default() };
    let open = "<s><|user|>Say<|end|>\n<|assistant|>I was saying";
    assert_eq!(template(CHATML).render(&request).unwrap(), format!("{open} "));
    let trimming = CHATML.replace("message.content", "message.content|trim");
    assert_eq!(template(&trimming).render(&request).unwrap(), open);
    let hiding = template("{{ bos_token }}").render(&request).unwrap_err();
    assert!(hiding.to_string().contains("does not show the last message"), "{hiding}");
    request.add_generation_prompt = true;
    assert_eq!(template(CHATML).render(&request).unwrap_err().param(), Some("continue_final_message"));
}

const PARTS_ONLY: &str =
    "{% for message in messages %}{% for part in message.content %}{{ part.text }};{% endfor %}{% endfor %}";

#[test]
fn brings_content_into_the_form_that_the_template_takes() {
    let messages = [
        json!({"role": "user", "content": "a"}),
        json!({"role": "user", "name": "n", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}),
        json!({"role": "assistant", "content": null}),
    ];
    let content = |source: &str, format| -> Vec<Value> {
        let prepared = prepare_messages(&messages, &template(source), format).unwrap();
        assert_eq!(prepared[1]["name"], "n");
        prepared.iter().map(|message| message["content"].clone()).collect()
    };
    let (a, bc) = (json!([{"type": "text", "text": "a"}]), messages[1]["content"].clone());
    assert_eq!(content(CHATML, ContentFormat::Auto), [json!("a"), json!("b\nc"), Value::Null]);
    assert_eq!(content(PARTS_ONLY, ContentFormat::Auto), [a.clone(), bc.clone(), Value::Null]);
    assert_eq!(content(CHATML, ContentFormat::OpenAi), [a, bc.clone(), Value::Null]);
    assert_eq!(content(PARTS_ONLY, ContentFormat::String), [json!("a"), json!("b\nc"), Value::Null]);
    let both = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}";
    assert_eq!(content(both, ContentFormat::Auto), [json!("a"), bc, Value::Null]);
}

#[test]
fn parses_tool_call_arguments() {
    let call = |arguments: &str| json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]);
    let prepare = |messages: &Value| {
        prepare_messages(messages.as_array().unwrap(), &template(CHATML), ContentFormat::Auto)
    };
    let prepared = prepare(&call("{\"b\": 1, \"a\": 2}")).unwrap();
    let arguments = &prepared[0]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments.to_string(), "{\"b\":1,\"a\":2}", "the order of keys is kept");
    assert_eq!(prepare(&call("")).unwrap()[0]["tool_calls"][0]["function"]["arguments"], json!({}));
    let error = prepare(&call("{b")).unwrap_err();
    assert!(
        error.to_string().starts_with("messages[0].tool_calls[0].function.arguments is not valid JSON"),
        "{error}"
    );
}

#[test]
fn refuses_messages_of_the_wrong_form() {
    for (messages, wanted) in [
        (json!(["hi"]), "messages[0] must be an object"),
        (json!([{"role": "user", "content": 1}]), "messages[0].content must be a string or a list of parts"),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
            "messages[0].content[0] has the type \"image_url\"; this model takes parts of type \"text\"",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0].content[0] must have a string in its field \"text\"",
        ),
    ] {
        let error = prepare_messages(messages.as_array().unwrap(), &template(CHATML), ContentFormat::Auto)
            .unwrap_err();
        assert_eq!((error.to_string().as_str(), error.param()), (wanted, Some("messages")));
    }
}
