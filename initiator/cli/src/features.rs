use clap::Args;
use nvme_proto::wire::U32;
use nvme_proto::wire::feature::{CAPABILITY_BITS, FEATURE_BITS, Feature, Select, SetFeaturesCdw10};

use super::bit_fields::{Detail, explain};
use super::number::{number, number_in};
use super::session::{Session, text};
use super::{Controller, Result};
use cairn_bench::object::Object;
use cairn_initiator::{Data, command};

/// Selection of a feature.
#[derive(Debug, Args)]
struct Which {
    /// Feature identifier: 0x06, 7, ...
    #[arg(short = 'f', long, value_name = "FID", value_parser = parse_fid)]
    feature_id: Feature,
    /// Namespace, for a feature that belongs to namespaces
    #[arg(short = 'N', long, value_name = "NSID", default_value_t = 0, value_parser = number::<u32>)]
    namespace_id: u32,
}

fn parse_fid(text: &str) -> Result<Feature> {
    let number = number::<u32>(text)?;
    u8::try_from(number)
        .map(Feature)
        .map_err(|_| "feature identifiers end at 0xff".to_owned())
}

#[derive(Debug, Args)]
pub(super) struct GetFeature {
    #[command(flatten)]
    which: Which,
    /// Value to get: 0 current, 1 default, 2 saved, 3 capabilities
    #[arg(short = 'S', long, value_name = "SEL", default_value_t = 0, value_parser = |text: &str| number_in::<u8>(text, 0..=3))]
    sel: u8,
    /// Command dword 11, for features that require it
    #[arg(short = 'c', long, value_name = "DWORD", default_value = "0", value_parser = number::<u32>)]
    cdw11: u32,
    /// Length of the data, for features that have data
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = number::<u32>)]
    data_len: u32,
    #[command(flatten)]
    detail: Detail,
    #[command(flatten)]
    controller: Controller,
}

impl GetFeature {
    pub(super) fn run(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let feature = self.which.feature_id;
        let select = Select(self.sel);
        let nsid = self.which.namespace_id;
        // Over Fabrics, the Host Identifier has 16 bytes and requires EXHID in CDW11 (Base,
        // 5.27.1).
        let (length, cdw11) = match (self.data_len, feature) {
            (0, Feature::HOST_IDENTIFIER) => (16, 1),
            (length, _) => (length, self.cdw11),
        };
        let sqe = command::get_features(feature.0, select, nsid, cdw11);
        let mut buffer = host.buffer(length.max(4) as usize).map_err(text)?;
        let data = match length {
            0 => Data::None,
            length => Data::start_of(&mut buffer, length),
        };
        let value = host.run_admin(sqe, data).map_err(text)?.cqe.dw0.get();
        host.shutdown().map_err(text)?;
        let bytes = buffer.bytes(0, length as usize);
        let mut object = Object::new()
            .with("feature", format!("{:#04x}", feature.0))
            .with("name", feature.to_string())
            .with("select", select.to_string())
            .with("value", value);
        if length > 0 {
            object = object.with("data", &bytes);
        }
        self.controller.output.show(&object, |_| {
            let mut line = format!("get-feature: {feature}, {select} value: {value:#010x}\n");
            if self.detail.human_readable {
                line += &meaning(feature, select, value);
            }
            if length > 0 {
                line += &super::output::hexdump(&bytes);
            }
            line
        });
        Ok(())
    }
}

fn meaning(feature: Feature, select: Select, value: u32) -> String {
    let name = format!("{:#04x}", feature.0);
    let known = match select {
        Select::SUPPORTED_CAPABILITIES => CAPABILITY_BITS.first(),
        _ => FEATURE_BITS.iter().find(|field| field.name == name),
    };
    known.map_or_else(String::new, |field| explain(field, value.into()))
}

#[derive(Debug, Args)]
pub(super) struct SetFeature {
    #[command(flatten)]
    which: Which,
    /// New value
    #[arg(short = 'V', long, value_name = "DWORD", value_parser = number::<u32>)]
    value: u32,
    /// Save the value, so that it survives resets
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    controller: Controller,
}

impl SetFeature {
    pub(super) fn run(&self) -> Result<()> {
        let mut host = Session::new(&self.controller.address)?.connect(0)?;
        let feature = self.which.feature_id;
        let mut sqe = command::set_features(feature.0, self.which.namespace_id, self.value);
        sqe.cdw10 = U32::new(SetFeaturesCdw10(sqe.cdw10.get()).with_sv(self.save).0);
        let result = host.run_admin(sqe, Data::None).map_err(text)?.cqe.dw0.get();
        host.shutdown().map_err(text)?;
        let object = Object::new()
            .with("feature", format!("{:#04x}", feature.0))
            .with("name", feature.to_string())
            .with("value", self.value)
            .with("result", result);
        self.controller.output.show(&object, |_| {
            format!(
                "set-feature: {feature}, value: {:#010x}, result: {result:#010x}",
                self.value
            )
        });
        Ok(())
    }
}
