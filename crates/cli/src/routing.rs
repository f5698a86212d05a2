//! `polylogue exchange`, `polylogue binding` and `polylogue vhost`.

use super::Failure;
use super::args::{
    BindingArgs, BindingCommand, CreateVhostArgs, DeclareExchangeArgs, DeleteExchangesArgs, ExchangeCommand,
    ServerArgs, VhostArgs, VhostCommand,
};
use super::output::Out;
use super::pairs::arguments;
use super::queues::{path, shown, yes};
use crate::client::http::segment;
use polylogue_admin::api::queues::{
    Binding, Bindings, DestinationType, Exchange, Exchanges, NewBinding, NewExchange, NewVhost, Vhost, Vhosts,
};
use serde_json::json;

pub(super) fn exchanges(command: &ExchangeCommand, out: &Out) -> Result<(), Failure> {
    match command {
        ExchangeCommand::List(within) => list_exchanges(within, out),
        ExchangeCommand::Declare(args) => declare_exchange(args, out),
        ExchangeCommand::Delete(args) => delete_exchanges(args, out),
    }
}

fn list_exchanges(within: &VhostArgs, out: &Out) -> Result<(), Failure> {
    let exchanges: Exchanges = within.at.client().get(&path(within, "exchanges"))?;
    let row = |x: &Exchange| {
        vec![x.name.clone(), x.kind.clone(), yes(x.durable), yes(x.internal), yes(x.auto_delete), shown(&x.arguments)]
    };
    let rows: Vec<_> = exchanges.exchanges.iter().map(row).collect();
    out.listing(
        &exchanges,
        "no exchanges",
        &["EXCHANGE", "TYPE", "DURABLE", "INTERNAL", "AUTO-DELETE", "ARGUMENTS"],
        &rows,
    )
}

fn declare_exchange(args: &DeclareExchangeArgs, out: &Out) -> Result<(), Failure> {
    let wanted = NewExchange {
        name: args.name.clone(),
        kind: args.kind.clone(),
        durable: !args.transient,
        auto_delete: args.auto_delete,
        internal: args.internal,
        arguments: arguments(&args.argument)?,
    };
    args.within.at.client().tell(&path(&args.within, "exchanges"), &wanted)?;
    if out.json {
        return out.value(&wanted);
    }
    out.line(&format!("declared {} exchange {}", wanted.kind, wanted.name))
}

fn delete_exchanges(args: &DeleteExchangesArgs, out: &Out) -> Result<(), Failure> {
    let client = args.within.at.client();
    for name in &args.names {
        let at = format!("{}/{}?if_unused={}", path(&args.within, "exchanges"), segment(name), args.if_unused);
        client.delete(&at)?;
        if !out.json {
            out.line(&format!("deleted exchange {name}"))?;
        }
    }
    if out.json { out.value(&json!({ "deleted": args.names })) } else { Ok(()) }
}

pub(super) fn bindings(command: &BindingCommand, out: &Out) -> Result<(), Failure> {
    let (args, delete) = match command {
        BindingCommand::List(within) => return list_bindings(within, out),
        BindingCommand::Add(args) => (args, false),
        BindingCommand::Delete(args) => (args, true),
    };
    let wanted = binding(args)?;
    let (at, did) = match delete {
        true => (path(&args.within, "bindings/delete"), "unbound"),
        false => (path(&args.within, "bindings"), "bound"),
    };
    args.within.at.client().tell(&at, &wanted)?;
    if out.json {
        return out.value(&wanted);
    }
    let kind = if args.to_exchange { "exchange" } else { "queue" };
    let (to, from) = (&wanted.destination, &wanted.source);
    out.line(&match delete {
        true => format!("{did} {kind} {to} from exchange {from}"),
        false => format!("{did} {kind} {to} to exchange {from}"),
    })
}

fn binding(args: &BindingArgs) -> Result<NewBinding, Failure> {
    Ok(NewBinding {
        source: args.source.clone(),
        destination: args.destination.clone(),
        destination_type: if args.to_exchange { DestinationType::Exchange } else { DestinationType::Queue },
        routing_key: args.key.clone(),
        arguments: arguments(&args.argument)?,
    })
}

fn list_bindings(within: &VhostArgs, out: &Out) -> Result<(), Failure> {
    let bindings: Bindings = within.at.client().get(&path(within, "bindings"))?;
    let row = |b: &Binding| {
        let kind = match b.destination_type {
            DestinationType::Queue => "queue",
            DestinationType::Exchange => "exchange",
        };
        let (from, to, key) = (b.source.clone(), b.destination.clone(), b.routing_key.clone());
        vec![from, kind.to_owned(), to, key, shown(&b.arguments)]
    };
    let rows: Vec<_> = bindings.bindings.iter().map(row).collect();
    out.listing(&bindings, "no bindings", &["EXCHANGE", "TO", "NAME", "KEY", "ARGUMENTS"], &rows)
}

pub(super) fn vhosts(command: &VhostCommand, out: &Out) -> Result<(), Failure> {
    match command {
        VhostCommand::List(at) => list_vhosts(at, out),
        VhostCommand::Create(args) => create_vhost(args, out),
        VhostCommand::Delete(args) => {
            let client = args.at.client();
            for name in &args.names {
                client.delete(&format!("/vhosts/{}", segment(name)))?;
                if !out.json {
                    out.line(&format!("deleted virtual host {name}"))?;
                }
            }
            if out.json { out.value(&json!({ "deleted": args.names })) } else { Ok(()) }
        }
    }
}

fn list_vhosts(at: &ServerArgs, out: &Out) -> Result<(), Failure> {
    let vhosts: Vhosts = at.client().get("/vhosts")?;
    let row =
        |v: &Vhost| vec![v.name.clone(), v.queues.to_string(), v.default_queue_type.clone(), v.description.clone()];
    let rows: Vec<_> = vhosts.vhosts.iter().map(row).collect();
    out.listing(&vhosts, "no virtual hosts", &["VIRTUAL HOST", "QUEUES", "DEFAULT TYPE", "DESCRIPTION"], &rows)
}

fn create_vhost(args: &CreateVhostArgs, out: &Out) -> Result<(), Failure> {
    let wanted = NewVhost {
        name: args.name.clone(),
        description: args.description.clone(),
        default_queue_type: args.default_queue_type.map(|kind| kind.name().to_owned()),
    };
    args.at.client().tell("/vhosts", &wanted)?;
    if out.json {
        return out.value(&wanted);
    }
    out.line(&format!("created virtual host {}", wanted.name))
}
