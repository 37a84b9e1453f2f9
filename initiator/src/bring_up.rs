//! From nothing to a controller that is ready, and back.

use std::sync::Arc;
use std::time::Duration;

use cairn_rdma::{ConnectOptions, Device, Provider, QpOptions};
use nvme_proto::wire::cm::{self, RejectData, RequestData};
use nvme_proto::wire::fabrics::{
    CNTLID_DYNAMIC, Cattr, ConnectCommand, ConnectData, ConnectResult, PropertyGetCommand,
    PropertySetCommand, PropertySize,
};
use nvme_proto::wire::feature::{Feature, NumberOfQueues};
use nvme_proto::wire::identify::{Cns, IdentifyController, Sgls};
use nvme_proto::wire::property::{Cc, Csts, offset};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{FromZeros, IntoBytes, Sqe, U16, U32};

use crate::buffer::Data;
use crate::command;
use crate::error::HostError;
use crate::host::{ADMIN_ENTRIES, Host, HostOptions};
use crate::queue::{Link, Queue};

/// IOCCSZ and IORCSZ are in units of this many bytes (Base, 5.17.2.1).
const CAPSULE_UNIT: usize = 16;
/// IOCCSZ, at least: an SQE.
const IOCCSZ_MIN: u32 = (SQE_BYTES / CAPSULE_UNIT) as u32;
/// CAP.TO is in units of this many milliseconds.
const CAP_TO_UNIT_MS: u64 = 500;
/// log2 of the bytes of an SQE and of a CQE, for CC.
const IOSQES: u8 = 6;
const IOCQES: u8 = 4;
/// How often a property that shall change is read.
const PROPERTY_INTERVAL: Duration = Duration::from_millis(1);
/// Waits for receives at the controller never end: it owes us one for each
/// command that a queue's size allows.
const RNR_RETRY_FOR_EVER: u8 = 7;

impl Host {
    /// Makes an association: connects the admin queue, enables the controller,
    /// and connects the I/O queues. Blocks.
    ///
    /// # Errors
    /// The first thing that goes wrong; nothing is left behind.
    pub fn connect(provider: &dyn Provider, options: HostOptions) -> Result<Self, HostError> {
        let device = provider.device_for(options.remote, options.local)?;
        Self::connect_on(&device, options)
    }

    /// As [`connect`](Self::connect), by a device that is known already.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_on(device: &Arc<dyn Device>, options: HostOptions) -> Result<Self, HostError> {
        let mut host = Self::open(device, options)?;
        host.connect_queue(0, ADMIN_ENTRIES, SQE_BYTES)?;
        host.enable()?;
        let identity = host.identify::<IdentifyController>(Cns::CONTROLLER, 0)?;
        check_usable(&identity)?;
        host.identity = Some(identity);
        if host.options.io_queues > 0 {
            host.connect_io_queues()?;
        }
        Ok(host)
    }

    /// Shuts the controller down in order, then ends all connections. Blocks.
    ///
    /// # Errors
    /// The controller does not report the shutdown as complete in time, or a
    /// connection does not close.
    pub fn shutdown(mut self) -> Result<(), HostError> {
        self.shut_down_controller()?;
        self.disconnect_all()
    }

    /// Sets CC.SHN to normal and waits for CSTS.SHST (Base, 3.6.2).
    ///
    /// # Errors
    /// The controller does not report the shutdown as complete in time.
    pub fn shut_down_controller(&mut self) -> Result<(), HostError> {
        let cc = Cc(self.property(offset::CC)?).with_shn(Cc::SHN_NORMAL);
        // From here on the controller takes property commands alone.
        self.end_keep_alive();
        self.set_property(offset::CC, cc.0)?;
        self.wait_for_csts("the end of the shutdown", |csts| {
            csts.shst() == Csts::SHST_COMPLETE
        })
    }

    /// Clears CC.EN: a controller level reset (Base, 3.7.2). The connections
    /// stay; commands that are outstanding may end without an answer.
    ///
    /// # Errors
    /// CSTS.RDY does not follow in time.
    pub fn reset(&mut self) -> Result<(), HostError> {
        let cc = Cc(self.property(offset::CC)?).with_en(false);
        self.end_keep_alive();
        self.set_property(offset::CC, cc.0)?;
        self.wait_for_csts("CSTS.RDY to clear", |csts| !csts.rdy())
    }

    /// Sets CC.EN and waits for CSTS.RDY (Base, 3.5.1).
    ///
    /// # Errors
    /// It does not follow in time, or the controller reports a fatal error.
    pub fn enable(&mut self) -> Result<(), HostError> {
        self.cap.0 = self.wide_property(offset::CAP)?;
        let css = if self.cap.css() & nvme_proto::wire::property::Cap::CSS_IOCS != 0 {
            Cc::CSS_IOCS
        } else {
            Cc::CSS_NVM
        };
        let cc = Cc(0)
            .with_css(css)
            .with_iosqes(IOSQES)
            .with_iocqes(IOCQES)
            .with_en(true);
        self.set_property(offset::CC, cc.0)?;
        self.wait_for_csts("CSTS.RDY", Csts::rdy)?;
        self.begin_keep_alive();
        Ok(())
    }

    /// Reads a property of 4 bytes.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn property(&mut self, at: u32) -> Result<u32, HostError> {
        let get = PropertyGetCommand::new(0, PropertySize::Four, at);
        Ok(self.run(0, get.into(), Data::None)?.cqe.result() as u32)
    }

    /// Reads a property of 8 bytes.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn wide_property(&mut self, at: u32) -> Result<u64, HostError> {
        let get = PropertyGetCommand::new(0, PropertySize::Eight, at);
        Ok(self.run(0, get.into(), Data::None)?.cqe.result())
    }

    /// Writes a property of 4 bytes.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn set_property(&mut self, at: u32, value: u32) -> Result<(), HostError> {
        let set = PropertySetCommand::new(0, PropertySize::Four, at, value.into());
        self.run(0, set.into(), Data::None).map(|_| ())
    }

    fn wait_for_csts(
        &mut self,
        what: &str,
        reached: impl Fn(Csts) -> bool,
    ) -> Result<(), HostError> {
        let timeout_ms = u64::from(self.cap.to()) * CAP_TO_UNIT_MS;
        let timeout = Duration::from_millis(timeout_ms).max(self.options.timeout);
        let deadline = self.options.clock.now() + timeout;
        loop {
            let csts = Csts(self.property(offset::CSTS)?);
            if reached(csts) {
                return Ok(());
            }
            if csts.cfs() {
                let why = "it reports a fatal error (CSTS.CFS)".to_owned();
                return Err(HostError::Unsupported(why));
            }
            if self.options.clock.now() >= deadline {
                let what = what.to_owned();
                return Err(HostError::Timeout { what, timeout });
            }
            std::thread::sleep(PROPERTY_INTERVAL);
        }
    }

    fn connect_io_queues(&mut self) -> Result<(), HostError> {
        let wanted = self.options.io_queues;
        let asked = NumberOfQueues(0)
            .with_nsq(wanted - 1)
            .with_ncq(wanted - 1)
            .0;
        let sqe = command::set_features(Feature::NUMBER_OF_QUEUES.0, 0, asked);
        let granted = NumberOfQueues(self.run(0, sqe, Data::None)?.cqe.dw0.get());
        let count = wanted
            .min(granted.nsq().saturating_add(1))
            .min(granted.ncq().saturating_add(1));
        let entries = self
            .options
            .queue_entries
            .min(self.cap.mqes().saturating_add(1));
        let capsule_bytes = self.controller().ioccsz.get() as usize * CAPSULE_UNIT;
        for qid in 1..=count {
            self.connect_queue(qid, entries, capsule_bytes)?;
        }
        Ok(())
    }

    /// Makes one connection and has it become queue `qid`.
    fn connect_queue(
        &mut self,
        qid: u16,
        entries: u16,
        capsule_bytes: usize,
    ) -> Result<(), HostError> {
        let sqsize = entries - 1;
        let request = RequestData::new(qid, entries, sqsize, self.request_cntlid(qid));
        let options = ConnectOptions {
            remote: self.options.remote,
            local: self.options.local,
            qp: QpOptions {
                send_work: sqsize.into(),
                // The controller reads and writes our memory, never we its.
                initiator_depth: 0,
                rnr_retry_count: RNR_RETRY_FOR_EVER,
                ..QpOptions::default()
            },
            timeout: self.options.timeout,
        };
        let qp = self.endpoint.connect(&options, request.as_bytes())?;
        let queue = Queue::new(&*self.device, qid, qp, sqsize, capsule_bytes)?;
        self.add_queue(queue);
        self.wait_established(qid)?;
        self.send_connect(qid)
    }

    fn wait_established(&mut self, qid: u16) -> Result<(), HostError> {
        let remote = self.options.remote;
        let what = format!("a connection for queue {qid}");
        let link = self.wait_until(what, |host| {
            let link = &host.queues[usize::from(qid)].link;
            (!matches!(link, Link::Connecting)).then(|| link.clone())
        })?;
        match link {
            Link::Established => Ok(()),
            Link::Refused(data, reason) => Err(refusal(&data, reason, remote, qid)),
            Link::Failed(reason) => Err(HostError::Unreachable {
                remote,
                qid,
                reason,
            }),
            Link::Lost(loss) => Err(HostError::Lost { qid, loss }),
            Link::Connecting => unreachable!("that is what was waited out"),
        }
    }

    /// Connect (Base, 6.3): its data go in the capsule where they fit, as they
    /// do on I/O queues, else the controller fetches them.
    fn send_connect(&mut self, qid: u16) -> Result<(), HostError> {
        let mut data = ConnectData::new_zeroed();
        data.hostid = self.options.hostid;
        data.cntlid = U16::new(if qid == 0 {
            CNTLID_DYNAMIC
        } else {
            self.cntlid
        });
        data.subnqn = self.options.subnqn.encode();
        data.hostnqn = self.options.hostnqn.encode();

        let queue = &self.queues[usize::from(qid)];
        let mut connect = ConnectCommand::from(Sqe::fabrics(0, ConnectCommand::FCTYPE));
        connect.qid = U16::new(qid);
        // A queue of SQSIZE + 1 entries holds SQSIZE commands.
        connect.sqsize = U16::new(queue.depth());
        connect.cattr = Cattr(0)
            .with_dissqfc(self.options.disable_sq_flow_control)
            .0;
        if qid == 0 {
            connect.kato = U32::new(self.options.kato_ms);
        }
        let response = if queue.in_capsule_max() >= data.as_bytes().len() {
            self.run(qid, connect.into(), Data::InCapsule(data.as_bytes()))?
        } else {
            let scratch = self.scratch.clone();
            scratch.write(0, data.as_bytes());
            let length = data.as_bytes().len() as u32;
            self.run(qid, connect.into(), Data::start_of(&scratch, length))?
        };
        let result = ConnectResult(response.cqe.dw0.get());
        if result.atr() || result.ascr() {
            let why = "it demands authentication, which this host does not speak".to_owned();
            return Err(HostError::Unsupported(why));
        }
        self.cntlid = result.cntlid();
        Ok(())
    }

    fn request_cntlid(&self, qid: u16) -> u16 {
        if qid == 0 {
            cm::CNTLID_NONE
        } else {
            self.cntlid
        }
    }
}

/// What the target said, or, where it said nothing, what its machine did.
fn refusal(
    data: &cairn_rdma::PrivateData,
    reason: u16,
    remote: std::net::SocketAddr,
    qid: u16,
) -> HostError {
    match RejectData::parse(data.as_slice()) {
        Ok(reject) if reject.sts.get() != 0 => HostError::Rejected {
            remote,
            qid,
            status: reject.status(),
        },
        _ => HostError::Unreachable {
            remote,
            qid,
            reason: match reason {
                8 => "nobody listens there (CM reject 8)".to_owned(),
                _ => format!("rejected without a word (CM reject {reason})"),
            },
        },
    }
}

/// What this host needs of a controller over RDMA.
fn check_usable(identity: &IdentifyController) -> Result<(), HostError> {
    let complaint = if !Sgls(identity.sgls.get()).keyed() {
        "SGLS lacks keyed data blocks"
    } else if identity.ioccsz.get() < IOCCSZ_MIN
        && identity.cntrltype != IdentifyController::CNTRLTYPE_DISCOVERY
    {
        "IOCCSZ does not hold an SQE"
    } else if identity.icdoff.get() != 0 {
        "ICDOFF is not 0"
    } else {
        return Ok(());
    };
    Err(HostError::Unsupported(complaint.to_owned()))
}
